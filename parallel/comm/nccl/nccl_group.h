// One group's communicator of NCCL. Private to this folder: see nccl_transport.h.
//
// It is what NCCL calls blocking: a call costs the host 7 us, and 71 us on one that is not, which
// gives each call a thread. NCCL's calls wait for other ranks when a communicator is made, when it
// ends, and when the first message goes from one rank to another. The first two, and Abort, have a
// thread of their own here, so that a deadline always holds.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/device_transport.h"
#include "parallel/comm/nccl/nccl_library.h"

namespace skein::comm {

class NcclGroup final : public DeviceTransport {
 public:
  // As MakeNcclTransport.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(
      const NcclFunctions& nccl, Communicator& group, const std::string& self,
      std::shared_ptr<DeviceEvents> device, absl::Duration timeout, int most_blocks = 0);
  // Ends with the others, or by force where they do not come.
  ~NcclGroup() override;

  absl::Status AllReduce(const Call& call, View data, Stream stream,
                         const Patience& patience) override;
  absl::Status Send(const Call& call, ConstView data, Stream stream,
                    const Patience& patience) override;
  absl::Status Receive(const Call& call, View data, Stream stream,
                       const Patience& patience) override;
  absl::Status Check() override;
  std::string Others(const Call& call) const override;
  bool SumsAsTree() const override { return false; }  // NCCL tells no order
  // NCCL ends the kernels within milliseconds, and then waits for graphs that hold its calls to be
  // destroyed, on a thread of its own.
  void Abort() override;

 private:
  using Body = absl::FunctionRef<ncclResult_t(ncclComm_t)>;
  // Shared with the threads that end and abort.
  struct Use {
    std::atomic<bool> in_call = false;
    std::atomic<bool> aborted = false;
    std::atomic<bool> freed = false;  // by one of them
  };

  NcclGroup(const NcclFunctions& nccl, std::string name, int rank,
            std::shared_ptr<DeviceEvents> device, int most_blocks)
      : nccl_(nccl),
        name_(std::move(name)),
        rank_(rank),
        device_(std::move(device)),
        most_blocks_(most_blocks) {}

  absl::Status Meet(Communicator& group, const std::string& self, absl::Duration timeout);
  absl::Status Init(Communicator& group, const ncclUniqueId& id, absl::Duration timeout);
  // FailedPrecondition on all ranks where one has an error, the first one's.
  absl::Status Agree(Communicator& group, const absl::Status& own) const;
  // "NCCL in all-reduce 3 of 'tp', with rank 1 on b"
  std::string Where(const Call& call) const;
  // Calls `body`, unless the group was aborted.
  ncclResult_t With(Body body);
  // Waits for NCCL's abort, for up to `timeout`.
  void AbortWithin(absl::Duration timeout);
  absl::Status Give(const Call& call, Body body);

  const NcclFunctions nccl_;
  const std::string name_;
  const int rank_;
  // NCCL selects its device, and behind a call the thread's own again: a thread that had none gets
  // half a GiB of the first device by that. So every thread selects it before.
  const std::shared_ptr<DeviceEvents> device_;
  const int most_blocks_;
  std::vector<std::string> members_;  // by rank
  ncclComm_t comm_ = nullptr;         // null where it could not be made
  const std::shared_ptr<Use> use_ = std::make_shared<Use>();
};

}  // namespace skein::comm
