//! What standard gRPC clients ask before anything else: whether the server is well (`grpc.health.v1`), and what it can
//! do (`grpc.reflection.v1`, and `v1alpha` for older ones). Both answer only to callers that the gate lets in.

use tonic::service::Routes;
use tonic_reflection::server::Builder;

/// The routes with the standard services among them.
pub(super) fn added_to(routes: Routes) -> Routes {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let mut routes = routes.add_service(health);
    let described = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(palyra_api::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match described().build_v1() {
        Ok(service) => routes = routes.add_service(service),
        Err(error) => tracing::error!(%error, "the interface cannot be described"),
    }
    match described().build_v1alpha() {
        Ok(service) => routes = routes.add_service(service),
        Err(error) => tracing::error!(%error, "the interface cannot be described to older clients"),
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_can_be_described() {
        let builder = Builder::configure()
            .register_encoded_file_descriptor_set(palyra_api::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        assert!(builder.build_v1().is_ok());
        drop(added_to(Routes::default()));
    }
}
