"""Language models: loading, pretraining of small ones, tasks and rollouts."""

from valuelens.models.lm._language_model import LanguageModel as LanguageModel
from valuelens.models.lm._rollouts import Rollouts as Rollouts
from valuelens.models.lm._rollouts import Tokens as Tokens
from valuelens.models.lm._task import Message as Message
from valuelens.models.lm._task import PretrainingTask as PretrainingTask
from valuelens.models.lm._task import Prompt as Prompt
from valuelens.models.lm._task import Task as Task
