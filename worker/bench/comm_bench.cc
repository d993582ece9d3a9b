#include "worker/bench/comm_bench.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/device_copies.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "base/view.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/ops/sizes.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "worker/bench/bench_device.h"
#include "worker/bench/bench_ranks.h"
#include "worker/bench/device_comm_bench.h"
#include "worker/device.h"
#include "worker/device_comm.h"

namespace skein::worker {
namespace {

// From what a step of one sequence exchanges to what long prompts do.
constexpr int64_t kSizes[] = {int64_t{8} << 10, int64_t{64} << 10, int64_t{1} << 20,
                              int64_t{8} << 20, int64_t{64} << 20};
constexpr int64_t kLeastBytes = kSizes[0];
constexpr int64_t kMostBytes = kSizes[std::size(kSizes) - 1];
constexpr absl::Duration kTimeout = absl::Minutes(1);

// A sample is several calls where one is short beside what a clock and a device's answer cost.
constexpr int64_t kSmallBytes = int64_t{1} << 20;
// For the samples of a row: ranks that share a GPU wait long for each other.
constexpr absl::Duration kBudget = absl::Milliseconds(500);

class CommBench {
 public:
  CommBench(const CommBenchOptions& options, BenchRanks& ranks)
      : options_(options), ranks_(ranks), mpi_(ranks.mpi()) {}

  absl::Status Run() {
    SKEIN_RETURN_IF_ERROR(Open());
    if (mpi_.size() == 1 && !is_gpu()) {
      return absl::InvalidArgumentError(
          "there is one rank, which exchanges nothing: mpirun -np 2 worker bench comm");
    }
    const Ceilings ceilings = {.bytes_per_s = is_gpu() ? 0 : ReadRate()};
    SKEIN_RETURN_IF_ERROR(mpi_.world().Barrier(kHostStream));
    report_.emplace("comm", FormatCount(mpi_.size(), "rank"),
                    BenchMachine{.kind = std::string(DeviceKindName(device_.device.kind)),
                                 .device = device_.device.name,
                                 .ceilings = ceilings});
    if (prints()) {
      report_->Begin();
      if (!ranks_.shared().empty()) report_->Note(ranks_.shared(), {});
    }
    if (is_gpu() && mpi_.size() > 1) SKEIN_RETURN_IF_ERROR(TimeDevices());
    for (const int64_t bytes : kSizes) {
      if (mpi_.size() == 1) break;
      SKEIN_RETURN_IF_ERROR(TimeAllReduce(bytes, ceilings));
      SKEIN_RETURN_IF_ERROR(TimeHop(bytes, ceilings));
    }
    if (is_gpu()) SKEIN_RETURN_IF_ERROR(TimeCopies());
    return prints() ? report_->WriteJson(options_.json_file) : absl::OkStatus();
  }

 private:
  bool is_gpu() const { return device_.device.kind == DeviceKind::kCuda; }
  bool prints() const { return mpi_.rank() == 0; }

  // The device, an array in its memory, and the group, as a rank has them.
  absl::Status Open() {
    SKEIN_ASSIGN_OR_RETURN(device_, ranks_.Find(options_.device));
    mpi_.world().set_timeout(kTimeout);
    SKEIN_ASSIGN_OR_RETURN(group_, mpi_.Split(0, mpi_.rank(), "bench"));
    group_->set_timeout(kTimeout);
    if (is_gpu()) {
      SKEIN_ASSIGN_OR_RETURN(copies_, kernels::MakeCudaCopies(device_.gpu));
      group_->StageThrough(copies_.get());
      SKEIN_ASSIGN_OR_RETURN(backend_, kernels::MakeCudaBackend({.device = device_.gpu}));
    } else {
      SKEIN_ASSIGN_OR_RETURN(backend_, kernels::MakeCpuBackend({.threads = 1}));
    }
    const DType dtype = kernels::ActivationDType(device_.device.kind, DType::kBF16);
    const int64_t cols = kLeastBytes / DTypeBytes(dtype, 1);
    program_.buffers = {{.name = "array", .cols = cols, .port = true, .dtype = dtype}};
    SKEIN_ASSIGN_OR_RETURN(executable_,
                           backend_->Compile(program_, {.rows = kMostBytes / kLeastBytes}, {}));
    return absl::OkStatus();
  }

  View Array(int64_t bytes) { return executable_->port(0, 0).First(bytes / kLeastBytes); }
  Stream stream() const { return executable_->port_stream(0); }

  // Nothing ends the wait but the copy.
  static absl::Status WaitOn() { return absl::OkStatus(); }

  static double ReadRate() {
    auto probe = kernels::ReadProbe::Create(/*threads=*/1, BytesBeyondCaches());
    return probe.ok() ? probe->Pass() : 0;
  }

  // Waits for what the stream was given.
  absl::Status Synchronize() {
    if (copies_ == nullptr) return absl::OkStatus();
    const View one = Array(kLeastBytes);
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<std::byte> host, copies_->Buffer(one.bytes()));
    return copies_->ToHost({one.data, one.dtype, 1, 1}, host.data(), stream(), WaitOn);
  }

  // The median seconds of a call, of `samples` samples. Rank 0 fits their number to kBudget, so
  // that all ranks of a sum or a hop make as many calls; ranks that are in neither make none.
  struct Timing {
    double seconds = 0;
    int samples = 0;
  };
  absl::StatusOr<Timing> Time(int64_t bytes, bool takes_part,
                              absl::FunctionRef<absl::Status()> call) {
    const int calls = bytes <= kSmallBytes ? 10 : 2;
    const auto sample = [&]() -> absl::StatusOr<absl::Duration> {
      const absl::Time begin = absl::Now();
      for (int i = 0; i < calls; ++i) SKEIN_RETURN_IF_ERROR(call());
      SKEIN_RETURN_IF_ERROR(Synchronize());
      return absl::Now() - begin;
    };
    absl::Duration first;  // the warm-up
    if (takes_part) {
      SKEIN_ASSIGN_OR_RETURN(first, sample());
    }
    const double fit = absl::FDivDuration(kBudget, std::max(first, absl::Microseconds(1)));
    auto samples = static_cast<int32_t>(std::clamp(fit, 3.0, 51.0));
    SKEIN_RETURN_IF_ERROR(
        mpi_.world().Broadcast(HostView(absl::MakeSpan(&samples, 1)), 0, kHostStream));
    std::vector<double> seconds = {0};
    if (takes_part) seconds.clear();
    for (int32_t i = 0; takes_part && i < samples; ++i) {
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, sample());
      seconds.push_back(absl::ToDoubleSeconds(time) / calls);
    }
    return Timing{.seconds = Median(std::move(seconds)), .samples = samples};
  }

  void Add(const char* what, int64_t message_bytes, double carried, const Timing& timing,
           const Ceilings& ceilings, const char* way = "") {
    if (!prints()) return;
    report_->Add({.name = absl::StrCat(what, " ", FormatBytes(message_bytes), way),
                  .fields = {{"ranks", mpi_.size()}, {"message_bytes", message_bytes}},
                  .seconds = timing.seconds,
                  .samples = timing.samples,
                  .bytes = carried,
                  .ceilings = ceilings});
  }

  // What goes from device to device; the hosts' rows come behind.
  absl::Status TimeDevices() {
    Ceilings copy;
    return TimeDeviceComm(*group_,
                          {.gpu = device_.gpu,
                           .host = absl::StrCat(mpi_.host_of(mpi_.rank())),
                           .timeout = kTimeout,
                           .add =
                               [&](const DeviceCommBenchOptions::Row& row) {
                                 if (row.is_copy) copy.bytes_per_s = row.carried / row.seconds;
                                 if (!prints()) return;
                                 report_->Add({.name = row.name,
                                               .fields = {{"ranks", mpi_.size()},
                                                          {"message_bytes", row.message_bytes}},
                                               .seconds = row.seconds,
                                               .samples = row.samples,
                                               .bytes = row.carried,
                                               .ceilings = row.is_copy ? Ceilings{} : copy});
                               },
                           .note =
                               [&](const std::string& line) {
                                 if (prints()) report_->Note(line, {});
                               }});
  }

  // On GPUs by way of the hosts' memory.
  const char* Way() const { return is_gpu() ? ", by the hosts" : ""; }

  absl::Status TimeAllReduce(int64_t bytes, const Ceilings& ceilings) {
    // Zeros stay zeros.
    SKEIN_ASSIGN_OR_RETURN(const Timing timing, Time(bytes, /*takes_part=*/true, [&] {
                             return group_->AllReduce(Array(bytes), stream());
                           }));
    const double ranks = mpi_.size();
    Add("all-reduce of", bytes, 2 * (ranks - 1) / ranks * static_cast<double>(bytes), timing,
        ceilings, Way());
    return absl::OkStatus();
  }

  absl::Status TimeHop(int64_t bytes, const Ceilings& ceilings) {
    const bool takes_part = mpi_.rank() < 2;
    const int other = 1 - mpi_.rank();
    const View array = Array(bytes);
    SKEIN_ASSIGN_OR_RETURN(Timing timing, Time(bytes, takes_part, [&]() -> absl::Status {
                             if (mpi_.rank() == 1)
                               SKEIN_RETURN_IF_ERROR(group_->Receive(array, other, stream()));
                             SKEIN_RETURN_IF_ERROR(group_->Send(array, other, stream()));
                             if (mpi_.rank() == 1) return absl::OkStatus();
                             return group_->Receive(array, other, stream());
                           }));
    timing.seconds /= 2;
    Add("hop of", bytes, static_cast<double>(bytes), timing, ceilings, Way());
    return takes_part ? group_->Flush(other) : absl::OkStatus();
  }

  absl::Status TimeCopies() {
    const View array = Array(kMostBytes);
    SKEIN_ASSIGN_OR_RETURN(const Timing there, Time(kMostBytes, prints(), [&]() -> absl::Status {
                             SKEIN_ASSIGN_OR_RETURN(const auto host, copies_->Buffer(kMostBytes));
                             return copies_->ToDevice(host.data(), array, stream(), WaitOn);
                           }));
    SKEIN_ASSIGN_OR_RETURN(const Timing back, Time(kMostBytes, prints(), [&]() -> absl::Status {
                             SKEIN_ASSIGN_OR_RETURN(const auto host, copies_->Buffer(kMostBytes));
                             return copies_->ToHost(array, host.data(), stream(), WaitOn);
                           }));
    Add("copy pinned to device of", kMostBytes, kMostBytes, there, {});
    Add("copy device to pinned of", kMostBytes, kMostBytes, back, {});
    return absl::OkStatus();
  }

  const CommBenchOptions& options_;
  BenchRanks& ranks_;
  comm::MpiRuntime& mpi_;
  RankDevice device_;
  std::unique_ptr<DeviceCopies> copies_;  // null on CPUs
  std::unique_ptr<comm::Communicator> group_;
  std::unique_ptr<kernels::Backend> backend_;
  kernels::Program program_;
  std::unique_ptr<kernels::Executable> executable_;
  std::optional<BenchReport> report_;
};

}  // namespace

absl::Status RunCommBench(const CommBenchOptions& options) {
  SKEIN_RETURN_IF_ERROR(CheckJsonFile(options.json_file));
  SKEIN_ASSIGN_OR_RETURN(const auto ranks,
                         BenchRanks::Start({.started = true,
                                            .oversubscribe_devices = options.oversubscribe_devices,
                                            .device_comm = DeviceComm::kNccl}));
  const absl::Status status = CommBench(options, *ranks).Run();
  // Finalizing would wait for ranks that are stuck; the caller ends the process.
  if (!status.ok()) ranks->Abandon();
  return status;
}

}  // namespace skein::worker
