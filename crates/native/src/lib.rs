//! The thin shell that shows the core to Python. Nothing here decides anything about messaging.

mod arrow;
mod buffer;
mod codec;
mod error;
mod filter;
mod forward;
mod grpc;
mod header;
mod ingest;
#[cfg(target_os = "linux")]
mod net;
mod panics;
mod relay;
mod sink;
mod store;
mod tls;

#[pyo3::pymodule]
mod roquet_native {
    #[pymodule_export]
    use crate::arrow::{records_to_arrow, sum_records, ArrowBatch};
    #[pymodule_export]
    use crate::codec::{
        crc32, decode_frames, decode_messages, decode_records, encode_command, project_records,
    };
    #[pymodule_export]
    use crate::error::StoreError;
    #[pymodule_export]
    use crate::filter::Filter;
    #[pymodule_export]
    use crate::forward::{GrpcForwarder, SendForwarder};
    #[pymodule_export]
    use crate::grpc::{BalancerHeader, GrpcConsumers, GrpcSends, GrpcServer, GrpcTls};
    #[pymodule_export]
    use crate::header::HeaderPlan;
    #[pymodule_export]
    use crate::ingest::Ingest;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::net::{NetConnection, NetThreads};
    #[pymodule_export]
    use crate::panics::{first_panic, plant_panic, share_arenas, watch_panics};
    #[pymodule_export]
    use crate::relay::Exchange;
    #[pymodule_export]
    use crate::sink::{java_hashes, sink_key, sum_rows, SinkEncoder};
    #[pymodule_export]
    use crate::store::log::{checkpoint_of, is_locked, LogReader};
    #[pymodule_export]
    use crate::store::rebuild::{
        deleted_topics, rebuild_index_file, rebuild_piece, rebuild_queue_file, rebuild_span,
    };
    #[pymodule_export]
    use crate::store::replica::{
        follow_another_log, follow_deletions, lead_log, log_bytes, log_deletions, log_limit,
        settle_log, take_renewed,
    };
    #[pymodule_export]
    use crate::store::replica_link::{feed_log, follow_log, LogLink, PairTls};
    #[pymodule_export]
    use crate::store::revive::copy_popped;
    #[pymodule_export]
    use crate::store::timer::TimerWheel;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::tls::{RemotingTls, TlsSession};
}
