#include "parallel/comm/nccl/nccl_group.h"

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_status.h"

namespace skein::comm {
namespace {

// For ranks that end together, which they do within milliseconds.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// For a call that is not waiting for other ranks to return, before it is aborted under way.
constexpr absl::Duration kCallTime = absl::Milliseconds(100);

// Runs `call` on a thread of its own and returns what it gave; nothing when it is not over by then.
// It goes on in that case.
std::optional<absl::Status> RunFor(absl::Duration timeout, std::function<absl::Status()> call) {
  struct Result {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  };
  const auto result = std::make_shared<Result>();
  std::thread([result, call = std::move(call)] {
    absl::Status status = call();
    MutexLock lock(&result->mutex);
    result->status = std::move(status);
    result->changed.NotifyAll();
  }).detach();
  const SteadyTime deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(&result->mutex);
  while (!result->status.has_value() && result->changed.WaitUntil(&result->mutex, deadline)) {
  }
  return result->status;
}

absl::StatusOr<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    default:
      return absl::UnimplementedError(absl::StrCat("GPUs sum F32, BF16 and F16, not ",
                                                   std::string(DTypeName(dtype)),
                                                   ": convert before the call"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(const NcclFunctions& nccl,
                                                             Communicator& group,
                                                             const std::string& self,
                                                             std::shared_ptr<DeviceEvents> device,
                                                             absl::Duration timeout) {
  auto made = std::unique_ptr<NcclGroup>(new NcclGroup(nccl, group.name(), group.rank()));
  SKEIN_RETURN_IF_ERROR(Annotate(made->Meet(group, self, std::move(device), timeout),
                                 absl::StrCat("NCCL for '", group.name(), "'")));
  return made;
}

absl::Status NcclGroup::Meet(Communicator& group, const std::string& self,
                             std::shared_ptr<DeviceEvents> device, absl::Duration timeout) {
  group.set_timeout(timeout);
  SKEIN_ASSIGN_OR_RETURN(members_, GatherStrings(group, self));
  ncclUniqueId id = {};
  if (rank_ == 0) {
    SKEIN_RETURN_IF_ERROR(NcclStatus(nccl_, nccl_.get_unique_id(&id), "ncclGetUniqueId"));
  }
  // All are here; what NCCL does then knows no names.
  SKEIN_RETURN_IF_ERROR(group.Broadcast({&id, DType::kU8, 1, sizeof(id)}, 0, kHostStream));
  return Init(id, std::move(device), timeout);
}

absl::Status NcclGroup::Init(const ncclUniqueId& id, std::shared_ptr<DeviceEvents> device,
                             absl::Duration timeout) {
  const auto made = std::make_shared<ncclComm_t>(nullptr);
  const std::string what =
      absl::StrCat("ncclCommInitRankConfig of ", members_[rank_], ", with ", Others({}));
  const std::optional<absl::Status> status = RunFor(
      timeout,
      [nccl = nccl_, made, id, device = std::move(device), what, rank = rank_,
       size = static_cast<int>(members_.size())]() -> absl::Status {
        SKEIN_RETURN_IF_ERROR(device->Select());
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        const ncclResult_t code = nccl.comm_init_rank_config(made.get(), size, id, rank, &config);
        return NcclStatus(nccl, code, what);
      });
  if (!status.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, ", was not over within ", absl::FormatDuration(timeout)));
  }
  SKEIN_RETURN_IF_ERROR(*status);
  comm_ = *made;
  return absl::OkStatus();
}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr || use_->aborted) return;
  const auto end = [nccl = nccl_, comm = comm_, use = use_]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(NcclStatus(nccl, nccl.comm_finalize(comm), "ncclCommFinalize"));
    // An abort ends what finalizing waits for, and frees the communicator.
    if (use->freed.exchange(true)) return absl::OkStatus();
    return NcclStatus(nccl, nccl.comm_destroy(comm), "ncclCommDestroy");
  };
  // Who does not come has failed, and ends. This process may end behind this, too.
  if (!RunFor(kEndTimeout, end).has_value()) AbortWithin(kEndTimeout);
}

void NcclGroup::Abort() { AbortWithin(absl::ZeroDuration()); }

void NcclGroup::AbortWithin(absl::Duration timeout) {
  if (comm_ == nullptr || use_->aborted.exchange(true)) return;
  RunFor(timeout, [nccl = nccl_, comm = comm_, use = use_] {
    // A call that goes on longer waits for another rank; NCCL ends that one.
    const absl::Time deadline = absl::Now() + kCallTime;
    while (use->in_call && absl::Now() < deadline) std::this_thread::yield();
    if (!use->freed.exchange(true)) nccl.comm_abort(comm);
    return absl::OkStatus();
  });
}

std::string NcclGroup::Others(const Call& call) const {
  if (IsMessage(call.operation)) return members_[call.peer];
  std::vector<std::string> others = members_;
  others.erase(others.begin() + rank_);
  return absl::StrJoin(others, ", ");
}

std::string NcclGroup::Where(const Call& call) const {
  return absl::StrCat("NCCL in ", DescribeCall(call, name_), ", with ", Others(call));
}

ncclResult_t NcclGroup::With(Body body) {
  use_->in_call = true;
  const ncclResult_t code = use_->aborted ? ncclInternalError : body(comm_);
  use_->in_call = false;
  return code;
}

absl::Status NcclGroup::Give(const Call& call, Body body) {
  const ncclResult_t code = With(body);
  if (use_->aborted) return absl::CancelledError(absl::StrCat(Where(call), " was aborted"));
  return NcclStatus(nccl_, code, Where(call));
}

absl::Status NcclGroup::AllReduce(const Call& call, View data, Stream stream, const Patience&) {
  SKEIN_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(data.dtype));
  return Give(call, [&](ncclComm_t comm) {
    return nccl_.all_reduce(data.data, data.data, static_cast<size_t>(data.elements()), type,
                            ncclSum, comm, static_cast<cudaStream_t>(stream.handle));
  });
}

absl::Status NcclGroup::Send(const Call& call, ConstView data, Stream stream, const Patience&) {
  return Give(call, [&](ncclComm_t comm) {
    return nccl_.send(data.data, static_cast<size_t>(data.bytes()), ncclUint8, call.peer, comm,
                      static_cast<cudaStream_t>(stream.handle));
  });
}

absl::Status NcclGroup::Receive(const Call& call, View data, Stream stream, const Patience&) {
  return Give(call, [&](ncclComm_t comm) {
    return nccl_.recv(data.data, static_cast<size_t>(data.bytes()), ncclUint8, call.peer, comm,
                      static_cast<cudaStream_t>(stream.handle));
  });
}

absl::Status NcclGroup::Check() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code =
      With([&](ncclComm_t comm) { return nccl_.comm_get_async_error(comm, &state); });
  return NcclStatus(nccl_, code == ncclSuccess ? state : code,
                    absl::StrCat("NCCL for '", name_, "', with ", Others({})));
}

}  // namespace skein::comm
