"""What is known of families of language models (`model_type`)."""

TESTED_FAMILIES = ("gemma3_text", "gpt2", "gpt_neox", "llama", "olmo2", "olmo3", "qwen2", "qwen3")
"""Those whose loading, padding and hidden gradients are tested; others work where transformers treats them alike."""

FULL_PRECISION_BRIDGES = ("olmo2", "olmo3")
"""Those that TransformerLens can run in float32 and float64 only: it multiplies float32 by half-precision matrices."""
