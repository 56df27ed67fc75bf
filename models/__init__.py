"""What runs: environments, prompts, architectures, constructions, training and checkpoints."""

from valuelens.models._devices import device as device
from valuelens.models._errors import InputError as InputError
from valuelens.models._errors import did_you_mean as did_you_mean
from valuelens.models._files import atomic_path as atomic_path
from valuelens.models._files import clear_temporaries as clear_temporaries
from valuelens.models._files import nearest as nearest
from valuelens.models._imported import import_named as import_named
from valuelens.models._interventions import ablated as ablated
from valuelens.models._interventions import denoised as denoised
from valuelens.models._interventions import noised as noised
from valuelens.models._interventions import patched as patched
from valuelens.models._processes import counters as counters
from valuelens.models._processes import deaf as deaf
from valuelens.models._shown import Shown as Shown
