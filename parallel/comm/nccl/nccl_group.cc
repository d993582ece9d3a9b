#include "parallel/comm/nccl/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
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

// Between two looks of ranks at each other's state.
constexpr absl::Duration kRound = absl::Milliseconds(5);

// A call on a thread of its own, which goes on when nobody waits for it any more.
class Apart {
 public:
  explicit Apart(std::function<absl::Status()> call) {
    std::thread([result = result_, call = std::move(call)] {
      absl::Status status = call();
      MutexLock lock(&result->mutex);
      result->status = std::move(status);
      result->changed.NotifyAll();
    }).detach();
  }
  // What it gave; nothing when it is not over by then.
  std::optional<absl::Status> WaitFor(absl::Duration timeout) const {
    const SteadyTime deadline =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
    MutexLock lock(&result_->mutex);
    while (!result_->status.has_value() && result_->changed.WaitUntil(&result_->mutex, deadline)) {
    }
    return result_->status;
  }

 private:
  struct Result {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Result> result_ = std::make_shared<Result>();
};

std::optional<absl::Status> RunFor(absl::Duration timeout, std::function<absl::Status()> call) {
  return Apart(std::move(call)).WaitFor(timeout);
}

// Where a rank is as a communicator is made, from the least to what counts most.
enum class Making : uint8_t { kMade, kUnderWay, kLate, kRefused };

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

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(
    const NcclFunctions& nccl, Communicator& group, const std::string& self,
    std::shared_ptr<DeviceEvents> device, absl::Duration timeout, int most_blocks) {
  auto made = std::unique_ptr<NcclGroup>(
      new NcclGroup(nccl, group.name(), group.rank(), std::move(device), most_blocks));
  SKEIN_RETURN_IF_ERROR(
      Annotate(made->Meet(group, self, timeout), absl::StrCat("NCCL for '", group.name(), "'")));
  return made;
}

absl::Status NcclGroup::Meet(Communicator& group, const std::string& self, absl::Duration timeout) {
  group.set_timeout(timeout);
  SKEIN_ASSIGN_OR_RETURN(members_, GatherStrings(group, self));
  ncclUniqueId id = {};
  absl::Status got;
  if (rank_ == 0) got = NcclStatus(nccl_, nccl_.get_unique_id(&id), "ncclGetUniqueId");
  SKEIN_RETURN_IF_ERROR(Agree(group, got));
  SKEIN_RETURN_IF_ERROR(group.Broadcast({&id, DType::kU8, 1, sizeof(id)}, 0, kHostStream));
  return Init(group, id, timeout);
}

absl::Status NcclGroup::Agree(Communicator& group, const absl::Status& own) const {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> why,
                         GatherStrings(group, std::string(own.message())));
  for (size_t rank = 0; rank < why.size(); ++rank) {
    if (why[rank].empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(members_[rank], ": ", why[rank]));
  }
  return absl::OkStatus();
}

// NCCL's own waiting tells a rank nothing of one that was refused. So all of them look at each
// other, round by round, and leave in the same one.
absl::Status NcclGroup::Init(Communicator& group, const ncclUniqueId& id, absl::Duration timeout) {
  struct Attempt {
    Mutex mutex;
    ncclComm_t comm ABSL_GUARDED_BY(mutex) = nullptr;
    bool left ABSL_GUARDED_BY(mutex) = false;  // nobody takes it any more
  };
  const auto attempt = std::make_shared<Attempt>();
  const Apart init([nccl = nccl_, attempt, id, device = device_, rank = rank_, size = group.size(),
                    most_blocks = most_blocks_]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(device->Select());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (most_blocks > 0) config.maxCTAs = most_blocks;
    ncclComm_t comm = nullptr;
    SKEIN_RETURN_IF_ERROR(NcclStatus(nccl,
                                     nccl.comm_init_rank_config(&comm, size, id, rank, &config),
                                     "ncclCommInitRankConfig"));
    MutexLock lock(&attempt->mutex);
    if (attempt->left) {
      nccl.comm_abort(comm);
    } else {
      attempt->comm = comm;
    }
    return absl::OkStatus();
  });
  const absl::Time deadline = absl::Now() + timeout;
  std::optional<absl::Status> own;
  auto most = Making::kUnderWay;
  for (bool first = true; most == Making::kUnderWay; first = false) {
    if (!first && own.has_value()) absl::SleepFor(kRound);
    if (!own.has_value()) own = init.WaitFor(kRound);
    Making mine = absl::Now() < deadline ? Making::kUnderWay : Making::kLate;
    if (own.has_value()) mine = own->ok() ? Making::kMade : Making::kRefused;
    std::vector<Making> all(group.size());
    SKEIN_RETURN_IF_ERROR(group.AllGather(ConstView{&mine, DType::kU8, 1, 1},
                                          View{all.data(), DType::kU8, group.size(), 1},
                                          kHostStream));
    most = *std::max_element(all.begin(), all.end());
  }
  {
    MutexLock lock(&attempt->mutex);
    comm_ = attempt->comm;
    attempt->left = true;
  }
  if (most == Making::kMade) return absl::OkStatus();
  Abort();  // what this rank has of it
  if (most == Making::kRefused) return Agree(group, own.value_or(absl::OkStatus()));
  return absl::DeadlineExceededError(absl::StrCat("ncclCommInitRankConfig of ", members_[rank_],
                                                  ", with ", Others({}), ", was not over within ",
                                                  absl::FormatDuration(timeout)));
}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr || use_->aborted) return;
  const auto end = [nccl = nccl_, comm = comm_, use = use_, device = device_]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(device->Select());
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
  RunFor(timeout, [nccl = nccl_, comm = comm_, use = use_, device = device_] {
    device->Select().IgnoreError();
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
  SKEIN_RETURN_IF_ERROR(device_->Select());
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
