"""Graders: pure functions from a reply's text to an `EvalOutput`, and the thin classes that read a task.

Nothing that a model wrote is executed. A reply without a usable answer scores 0 with the metadata `status`
`unparsed`; a task without the reference that its grader needs is a `DataError`, never a 0.
"""

from rllm_bench.graders.countdown import CountdownGrader, grade_countdown
from rllm_bench.graders.exact import IntegerGrader, SequenceGrader, grade_integer, grade_sequence
from rllm_bench.graders.expression import Expression, ExpressionError, parse_expression
from rllm_bench.graders.numbers import last_number, parse_number
from rllm_bench.graders.numeric import NumericGrader, grade_numeric
from rllm_bench.graders.replies import last_tagged, marked_answer, without_thinking

__all__ = [
    "CountdownGrader",
    "Expression",
    "ExpressionError",
    "IntegerGrader",
    "NumericGrader",
    "SequenceGrader",
    "grade_countdown",
    "grade_integer",
    "grade_numeric",
    "grade_sequence",
    "last_number",
    "last_tagged",
    "marked_answer",
    "parse_expression",
    "parse_number",
    "without_thinking",
]
