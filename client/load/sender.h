// The ways in which a load's requests reach the coordinator.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/load/workload.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {

// Requests are named by their index.
class Sender {
 public:
  // Told by the sender's only thread (the load leaves the machine to what it measures), or by Send
  // of a request that cannot be sent.
  class Listener {
   public:
    virtual void OnTokens(size_t index, size_t tokens) = 0;
    virtual void OnEnd(size_t index, const grpc::Status& status) = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~Sender() = default;  // after every request's OnEnd

  virtual void Send(size_t index, const PlannedRequest& request) = 0;
  // Ends what runs, and what is sent after it, as CANCELLED. From any thread.
  virtual void Cancel() = 0;
};

v1::GenerateRequest MakeRequest(const PlannedRequest& planned);

// All over one call of GenerateMany, as a gateway has it: what a step gives comes in one message.
std::unique_ptr<Sender> SendInOneCall(v1::Inference::Stub* stub, Sender::Listener* listener);

// Each by a call of Generate, as clients without a gateway have it; on one connection.
std::unique_ptr<Sender> SendInSeparateCalls(v1::Inference::Stub* stub, Sender::Listener* listener);

}  // namespace skein::client
