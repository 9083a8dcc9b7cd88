"""The runner of each kind of step."""

from collections.abc import Mapping
from types import MappingProxyType

from crossstream.operators.aggregate import runner as aggregate
from crossstream.operators.debezium import runner as debezium
from crossstream.operators.deduplicate import runner as deduplicate
from crossstream.operators.expire.runner import ExpireRunner
from crossstream.operators.foreign_key_join import runner as foreign_key_join
from crossstream.operators.global_join import runner as global_join
from crossstream.operators.process.batches import TransformBatchesRunner
from crossstream.operators.process.runner import ProcessRunner
from crossstream.operators.sink import runner as sink
from crossstream.operators.star_join import runner as star_join
from crossstream.operators.stateless.runner import EncodeRunner, StatelessRunner
from crossstream.operators.stream_join.runner import StreamStreamJoinRunner
from crossstream.operators.stream_table_join.runner import StreamTableJoinRunner
from crossstream.operators.suppress.runner import SuppressRunner
from crossstream.operators.table import runner as table
from crossstream.operators.table_join.runner import TableJoinRunner
from crossstream.operators.windowed.runner import WindowedRunner
from crossstream.planning import steps
from crossstream.task.runner import Runner

RUNNERS: Mapping[type[steps.Step], type[Runner]] = MappingProxyType(
    {
        steps.StatelessStep: StatelessRunner,
        steps.EncodeStep: EncodeRunner,
        steps.MaterializeStep: table.MaterializeRunner,
        steps.ExpireStep: ExpireRunner,
        steps.CompleteRowsStep: debezium.CompleteRowsRunner,
        steps.OrderStep: table.OrderRunner,
        steps.GroupTableStep: aggregate.GroupTableRunner,
        steps.AggregateStep: aggregate.AggregateRunner,
        steps.WindowedAggregateStep: WindowedRunner,
        steps.ProcessStep: ProcessRunner,
        steps.TransformBatchesStep: TransformBatchesRunner,
        steps.IdentifyStep: deduplicate.IdentifyRunner,
        steps.DeduplicateStep: deduplicate.DeduplicateRunner,
        steps.SuppressStep: SuppressRunner,
        steps.TableJoinStep: TableJoinRunner,
        steps.StreamStreamJoinStep: StreamStreamJoinRunner,
        steps.StreamTableJoinStep: StreamTableJoinRunner,
        steps.ReferenceStep: foreign_key_join.ReferenceRunner,
        steps.SubscribeStep: foreign_key_join.SubscribeRunner,
        steps.ResolveStep: foreign_key_join.ResolveRunner,
        steps.ReferManyStep: star_join.ReferManyRunner,
        steps.AnswerManyStep: star_join.AnswerManyRunner,
        steps.ResolveManyStep: star_join.ResolveManyRunner,
        steps.GlobalStep: global_join.GlobalRunner,
        steps.GlobalResolveStep: global_join.GlobalResolveRunner,
        steps.StreamGlobalJoinStep: global_join.StreamGlobalJoinRunner,
        steps.SinkStep: sink.SinkRunner,
        steps.FrameSinkStep: sink.FrameSinkRunner,
    }
)
