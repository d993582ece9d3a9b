// A client of the admin service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"

namespace skein::coordinator {

class AdminClient {
 public:
  template <typename Response>
  struct Outcome {
    grpc::Status status;
    Response response;
  };

  explicit AdminClient(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(admin::v1::Admin::NewStub(channel)) {}

  Outcome<admin::v1::AddModelResponse> AddModel(const std::string& model,
                                                const std::vector<std::string>& flags = {}) {
    admin::v1::AddModelRequest request;
    request.set_model(model);
    request.mutable_flags()->Add(flags.begin(), flags.end());
    Outcome<admin::v1::AddModelResponse> outcome;
    grpc::ClientContext context;
    outcome.status = stub_->AddModel(&context, request, &outcome.response);
    return outcome;
  }
  Outcome<admin::v1::RemoveModelResponse> RemoveModel(const std::string& name,
                                                      std::optional<double> timeout = {}) {
    admin::v1::RemoveModelRequest request;
    request.set_name(name);
    if (timeout.has_value()) request.set_timeout_seconds(*timeout);
    Outcome<admin::v1::RemoveModelResponse> outcome;
    grpc::ClientContext context;
    outcome.status = stub_->RemoveModel(&context, request, &outcome.response);
    return outcome;
  }
  Outcome<admin::v1::DrainJobResponse> DrainJob(const std::string& job_id,
                                                std::optional<double> timeout = {}) {
    admin::v1::DrainJobRequest request;
    request.set_job_id(job_id);
    if (timeout.has_value()) request.set_timeout_seconds(*timeout);
    Outcome<admin::v1::DrainJobResponse> outcome;
    grpc::ClientContext context;
    outcome.status = stub_->DrainJob(&context, request, &outcome.response);
    return outcome;
  }

 private:
  const std::unique_ptr<admin::v1::Admin::Stub> stub_;
};

}  // namespace skein::coordinator
