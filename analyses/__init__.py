"""What asks: one question per module, joining models and probe into one result."""

from valuelens.analyses._analyze import ANALYSES as ANALYSES
from valuelens.analyses._analyze import RUN_ANALYSES as RUN_ANALYSES
from valuelens.analyses._analyze import analyze as analyze
from valuelens.analyses._convergence import convergence as convergence
from valuelens.analyses._diagonality import diagonality as diagonality
from valuelens.analyses._distance import distance as distance
from valuelens.analyses._emergence import emergence as emergence
from valuelens.analyses._emergence import measurements as measurements
from valuelens.analyses._reparameterisation import reparameterisation as reparameterisation
from valuelens.analyses._request import AnalysisConfig as AnalysisConfig
from valuelens.analyses._result import Array as Array
from valuelens.analyses._result import Control as Control
from valuelens.analyses._result import Finding as Finding
from valuelens.analyses._result import Result as Result
from valuelens.analyses._result import load_result as load_result
from valuelens.analyses._result import merged as merged
from valuelens.analyses._result import result_schema as result_schema
from valuelens.analyses._result import save_result as save_result
from valuelens.analyses._slots import slots as slots
from valuelens.analyses._slots import value_errors as value_errors
from valuelens.analyses._subject import Subject as Subject
from valuelens.analyses._subject import subject as subject
from valuelens.analyses._subject import td_iterates as td_iterates
from valuelens.analyses._subject import weights_of as weights_of
from valuelens.analyses._verdict import learned_values as learned_values
from valuelens.analyses._verdict import verdict as verdict
