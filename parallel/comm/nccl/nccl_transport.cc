#include "parallel/comm/nccl/nccl_transport.h"

#include <utility>

#include "base/status_macros.h"
#include "parallel/comm/nccl/nccl_group.h"
#include "parallel/comm/nccl/nccl_library.h"

namespace skein::comm {
namespace {

const absl::StatusOr<NcclFunctions>& Opened() {
  // A library is opened once a process, and never closed: its threads are in use.
  static const auto* const opened = new absl::StatusOr<NcclFunctions>(
      OpenNcclLibrary({"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}));
  return *opened;
}

}  // namespace

absl::Span<const NcclVariable> NcclEnvironment() {
  static constexpr NcclVariable kVariables[] = {
      // NVLink multicast stays off: it takes memory and gains nothing at these sizes.
      {"NCCL_NVLS_ENABLE", "0"},
      // Ranks connect as their group is made, within its deadline, not inside of a first sum.
      {"NCCL_RUNTIME_CONNECT", "0"},
      // A queue of the device for each stream, those of NCCL included: work of one stream that
      // waits holds up no other one's. Plans count what they pin (plan::kQueueBytes).
      {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
  };
  return kVariables;
}

absl::Status OpenNccl() { return Opened().status(); }

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    Communicator& group, const std::string& self, std::shared_ptr<DeviceEvents> device,
    absl::Duration timeout, int most_blocks) {
  SKEIN_RETURN_IF_ERROR(OpenNccl());
  return NcclGroup::Create(*Opened(), group, self, std::move(device), timeout, most_blocks);
}

}  // namespace skein::comm
