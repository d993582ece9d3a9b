// Serves skein.admin.v1.Admin over gRPC.
#pragma once

#include "coordinator/rpc/admin.h"
#include "proto/admin.grpc.pb.h"

namespace skein::coordinator {

// All methods get their message as bytes: see raw_message.h.
using RawAdmin = admin::v1::Admin::WithRawCallbackMethod_AddModel<
    admin::v1::Admin::WithRawCallbackMethod_RemoveModel<
        admin::v1::Admin::WithRawCallbackMethod_DrainJob<admin::v1::Admin::Service>>>;

// Thread-safe.
class AdminRpc final : public RawAdmin {
 public:
  // The admin outlives the service, which outlives its calls.
  explicit AdminRpc(Admin* admin) : admin_(admin) {}

  // On a thread of its own, since it may take minutes.
  grpc::ServerUnaryReactor* AddModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RemoveModel(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DrainJob(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  Admin* const admin_;
};

}  // namespace skein::coordinator
