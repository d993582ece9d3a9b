#include "coordinator/rpc/inference_rpc.h"

#include "coordinator/rpc/generate_many_stream.h"
#include "coordinator/rpc/generate_stream.h"
#include "coordinator/rpc/inference_convert.h"

namespace skein::coordinator {

grpc::ServerWriteReactor<v1::GenerateEvent>* InferenceRpc::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return GenerateStream::Start(context, *request, service_);
}

grpc::ServerBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>*
InferenceRpc::GenerateMany(grpc::CallbackServerContext* context) {
  return GenerateManyStream::Start(context, service_);
}

grpc::ServerUnaryReactor* InferenceRpc::ListModels(grpc::CallbackServerContext* context,
                                                   const v1::ListModelsRequest* /*request*/,
                                                   v1::ListModelsResponse* response) {
  *response->add_models() = ToProto(service_->model(), service_->serving());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace skein::coordinator
