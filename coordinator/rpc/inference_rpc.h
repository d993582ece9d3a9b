// Serves skein.v1.Inference over gRPC.
#pragma once

#include "coordinator/service/inference_service.h"
#include "proto/inference.grpc.pb.h"

namespace skein::coordinator {

// The methods that take one message get it as bytes: see raw_message.h.
using RawInference =
    v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_Resume<
        v1::Inference::WithRawCallbackMethod_Discard<v1::Inference::WithCallbackMethod_GenerateMany<
            v1::Inference::WithRawCallbackMethod_ListModels<v1::Inference::Service>>>>>;

// Thread-safe.
class InferenceRpc final : public RawInference {
 public:
  // The service outlives this.
  explicit InferenceRpc(InferenceService* service) : service_(service) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Resume(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Discard(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>* GenerateMany(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  InferenceService* const service_;
};

}  // namespace skein::coordinator
