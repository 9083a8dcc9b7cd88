"""The runner of each kind of step."""

from crossstream.operators.foreign_key_join.runner import ReferenceRunner, ResolveRunner, SubscribeRunner
from crossstream.operators.global_join.runner import GlobalResolveRunner, GlobalRunner, StreamGlobalJoinRunner
from crossstream.operators.runner import Runner
from crossstream.operators.sink.runner import FrameSinkRunner, SinkRunner
from crossstream.operators.star_join.runner import AnswerManyRunner, ReferManyRunner, ResolveManyRunner
from crossstream.operators.stateless.runner import StatelessRunner
from crossstream.operators.stream_join.runner import StreamStreamJoinRunner
from crossstream.operators.stream_table_join.runner import StreamTableJoinRunner
from crossstream.operators.table.runner import MaterializeRunner, OrderRunner
from crossstream.operators.table_join.runner import TableJoinRunner
from crossstream.planning.steps import (
    AnswerManyStep,
    FrameSinkStep,
    GlobalResolveStep,
    GlobalStep,
    MaterializeStep,
    OrderStep,
    ReferenceStep,
    ReferManyStep,
    ResolveManyStep,
    ResolveStep,
    SinkStep,
    StatelessStep,
    Step,
    StreamGlobalJoinStep,
    StreamStreamJoinStep,
    StreamTableJoinStep,
    SubscribeStep,
    TableJoinStep,
)

RUNNERS: dict[type[Step], type[Runner]] = {
    StatelessStep: StatelessRunner,
    ReferenceStep: ReferenceRunner,
    MaterializeStep: MaterializeRunner,
    TableJoinStep: TableJoinRunner,
    OrderStep: OrderRunner,
    StreamStreamJoinStep: StreamStreamJoinRunner,
    StreamTableJoinStep: StreamTableJoinRunner,
    SubscribeStep: SubscribeRunner,
    ResolveStep: ResolveRunner,
    ReferManyStep: ReferManyRunner,
    AnswerManyStep: AnswerManyRunner,
    ResolveManyStep: ResolveManyRunner,
    GlobalStep: GlobalRunner,
    GlobalResolveStep: GlobalResolveRunner,
    StreamGlobalJoinStep: StreamGlobalJoinRunner,
    SinkStep: SinkRunner,
    FrameSinkStep: FrameSinkRunner,
}
