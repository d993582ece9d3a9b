// skein.v1.Inference over gRPC.
#pragma once

#include "coordinator/service/inference_service.h"
#include "proto/inference.grpc.pb.h"

namespace skein::coordinator {

// Thread-safe.
class InferenceRpc final : public v1::Inference::CallbackService {
 public:
  // The service outlives this.
  explicit InferenceRpc(InferenceService* service) : service_(service) {}

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>* GenerateMany(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

 private:
  InferenceService* const service_;
};

}  // namespace skein::coordinator
