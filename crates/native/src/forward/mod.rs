//! Requests on their way to brokers of a cluster, for Python.

mod grpc;
mod remoting;

pub(crate) use grpc::GrpcForwarder;
pub(crate) use remoting::SendForwarder;
