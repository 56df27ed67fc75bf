"""Continuous control problems with known value gradients: the testbed of costates."""

from valuelens.models.control._policy_gradients import pathwise_gradients as pathwise_gradients
from valuelens.models.control._policy_gradients import score_function_gradients as score_function_gradients
from valuelens.models.control._quadrature import value_by_quadrature as value_by_quadrature
from valuelens.models.control._rollout import Trajectories as Trajectories
from valuelens.models.control._rollout import local_derivatives as local_derivatives
from valuelens.models.control._rollout import pathwise_costates as pathwise_costates
from valuelens.models.control._rollout import rollout as rollout
from valuelens.models.control._shift_policy import Noise as Noise
from valuelens.models.control._shift_policy import ShiftPolicy as ShiftPolicy
from valuelens.models.control._systems import DoubleWell as DoubleWell
from valuelens.models.control._systems import LinearQuadratic as LinearQuadratic
from valuelens.models.control._systems import Pendulum as Pendulum
from valuelens.models.control._systems import System as System
from valuelens.models.control._systems import regulator as regulator
