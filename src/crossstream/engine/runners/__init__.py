"""The operators of a round at work in one task, by the step they carry out."""

from crossstream.engine.runners.base import Runner
from crossstream.engine.runners.foreign_key import ReferenceRunner, ResolveRunner, SubscribeRunner
from crossstream.engine.runners.globals import GlobalRunner, StreamGlobalJoinRunner
from crossstream.engine.runners.join_many import AnswerManyRunner, ReferManyRunner, ResolveManyRunner
from crossstream.engine.runners.sinks import FrameSinkRunner, SinkRunner
from crossstream.engine.runners.stateless import StatelessRunner
from crossstream.engine.runners.stream_stream import StreamStreamJoinRunner
from crossstream.engine.runners.stream_table import StreamTableJoinRunner
from crossstream.engine.runners.table_global import GlobalResolveRunner
from crossstream.engine.runners.tables import MaterializeRunner, OrderRunner, TableJoinRunner
from crossstream.topology.steps import (
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
