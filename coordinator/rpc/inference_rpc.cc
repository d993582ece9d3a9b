#include "coordinator/rpc/inference_rpc.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "coordinator/rpc/generate_many_stream.h"
#include "coordinator/rpc/generate_stream.h"
#include "coordinator/rpc/inference_convert.h"
#include "coordinator/rpc/raw_message.h"
#include "coordinator/service/kept_answers.h"

namespace skein::coordinator {

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceRpc::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return GenerateStream::Start(context, *request, service_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceRpc::Resume(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return GenerateStream::Resume(context, *request, service_);
}

grpc::ServerUnaryReactor* InferenceRpc::Discard(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return AnswerUnary<v1::DiscardRequest, v1::DiscardResponse>(
      context, {.name = "/skein.v1.Inference/Discard"}, *request, response,
      [this](const auto& asked, auto& /*done*/) {
        SKEIN_ASSIGN_OR_RETURN(const std::shared_ptr<KeptAnswer> answer,
                               FindKept(*service_, asked.request_id()));
        service_->kept()->Discard(answer);
        return absl::OkStatus();
      });
}

grpc::ServerBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>*
InferenceRpc::GenerateMany(grpc::CallbackServerContext* context) {
  return GenerateManyStream::Start(context, service_);
}

grpc::ServerUnaryReactor* InferenceRpc::ListModels(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return AnswerUnary<v1::ListModelsRequest, v1::ListModelsResponse>(
      context, {.name = "/skein.v1.Inference/ListModels", .is_routine = true}, *request, response,
      [this](const auto& /*request*/, auto& models) {
        for (const HostedModel& hosted : service_->models().All()) {
          *models.add_models() = ToProto(hosted);
        }
        for (const std::string& name : service_->models().Loading()) {
          v1::Model& model = *models.add_models();
          model.set_name(name);
          model.set_state(ModelRegistry::kLoading);
        }
        return absl::OkStatus();
      });
}

}  // namespace skein::coordinator
