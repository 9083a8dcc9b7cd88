package crossstream.oracle;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * RocksDB for a handful of records that nobody reads again: by default opening a store starts 16 threads and reserves
 * 4 MiB of manifest, and closing it writes out what is in memory. Nothing here changes a result.
 */
public final class SmallRocksDb implements RocksDBConfigSetter {
    @Override
    public void setConfig(String store, Options options, Map<String, Object> settings) {
        options.setMaxFileOpeningThreads(1);
        options.setAllowFAllocate(false);
        options.setManifestPreallocationSize(1);
        options.setAvoidFlushDuringShutdown(true);
        options.setStatsDumpPeriodSec(0);
        options.setStatsPersistPeriodSec(0);
    }

    @Override
    public void close(String store, Options options) { }
}
