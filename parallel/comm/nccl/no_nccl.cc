// Of builds without --config=cuda.
#include "parallel/comm/nccl/nccl_transport.h"

namespace skein::comm {

absl::Span<const NcclVariable> NcclEnvironment() { return {}; }

absl::Status OpenNccl() {
  return absl::UnimplementedError("this build knows of no NCCL; one with --config=cuda does");
}

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(Communicator&,
                                                                   const std::string&,
                                                                   std::shared_ptr<DeviceEvents>,
                                                                   absl::Duration, int) {
  return OpenNccl();
}

}  // namespace skein::comm
