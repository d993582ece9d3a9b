#include "worker/device.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "topology/host/host.h"
#include "topology/host/nvml.h"

namespace skein::worker {
namespace {

// Why a worker that may take either takes the CPU; "" where it does not: GPUs in disorder are an
// error, not a CPU.
std::string WhyNone(const absl::StatusOr<SeenGpus>& gpus) {
  if (gpus.ok()) return gpus->empty() ? "CUDA sees none" : "";
  const bool unusable =
      absl::IsUnimplemented(gpus.status()) || absl::IsFailedPrecondition(gpus.status());
  return unusable ? std::string(gpus.status().message()) : "";
}

}  // namespace

void NameSlice(const absl::StatusOr<topology::GpuState>& state, RankDevice& device) {
  // CUDA calls one "NVIDIA H200 MIG 1g.18gb", whatever NVML may tell here.
  device.mig = state.ok() ? state->mig : absl::StrContains(device.device.name, " MIG ");
  if (!device.mig) return;
  absl::StrAppend(&device.device.name, ", ", topology::NvmlUuid("MIG", device.uuid));
}

std::string NameUsers(const absl::StatusOr<topology::GpuState>& state) {
  if (!state.ok() || state->free_bytes >= state->total_bytes / 10 * 9) return "";
  return topology::FormatGpuUsers(*state);
}

absl::StatusOr<kernels::DecodeForm> ParseDecodeForm(const std::string& text) {
  using enum kernels::DecodeForm;
  for (const kernels::DecodeForm form : {kAuto, kGraph, kPersistent}) {
    if (text == DecodeFormName(form)) return form;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be auto, graph or persistent, not '", text, "'"));
}

std::string_view DecodeFormName(kernels::DecodeForm form) {
  switch (form) {
    case kernels::DecodeForm::kGraph:
      return "graph";
    case kernels::DecodeForm::kPersistent:
      return "persistent";
    default:
      return "auto";
  }
}

int32_t ThreadsWithin(int32_t planned, const absl::StatusOr<int32_t>& cores) {
  return cores.ok() ? std::max(1, std::min(planned, *cores)) : planned;
}

absl::Status CheckProfile(int steps, const RankDevice& device) {
  if (steps == 0 || device.device.kind == DeviceKind::kCuda) return absl::OkStatus();
  return absl::UnimplementedError(
      "--profile marks the kernels of GPUs, and this computes on a CPU, whose functions `perf "
      "record` sees without marks");
}

absl::Status CheckDecodeForm(kernels::DecodeForm form, const RankDevice& device) {
  if (form == kernels::DecodeForm::kAuto || device.device.kind == DeviceKind::kCuda) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("--decode=", std::string(DecodeFormName(form)),
                                               " is for GPUs, and this computes on a CPU"));
}

SeenGpus SeeGpus(std::optional<DeviceKind> asked) {
  if (asked == DeviceKind::kCpu) return {};
  return kernels::ListCudaDevices().value_or(SeenGpus{});
}

absl::StatusOr<GpuShare> ShareOfGpus(const DeviceChoice& choice) {
  std::map<std::string, std::vector<int>> ranks;  // of a GPU
  GpuShare share;
  for (int rank = 0; rank < static_cast<int>(choice.seen.size()); ++rank) {
    const SeenGpus& seen = choice.seen[rank];
    if (seen.empty()) continue;
    const auto gpu = std::min_element(seen.begin(), seen.end(), [&](const auto& a, const auto& b) {
      return ranks[a].size() < ranks[b].size();
    });
    ranks[*gpu].push_back(rank);
    if (rank == choice.local_rank) share.gpu = static_cast<int>(gpu - seen.begin());
  }
  const SeenGpus& own = choice.seen[choice.local_rank];
  const std::vector<int> sharers = own.empty() ? std::vector<int>{} : ranks[own[share.gpu]];
  share.sharers = static_cast<int>(sharers.size());
  if (share.sharers == 1 || (share.sharers > 1 && choice.oversubscribe)) return share;
  return absl::FailedPreconditionError(absl::StrCat(
      "this is rank ", choice.local_rank, " (from 0) of a host where it sees ", own.size(), " GPUs",
      sharers.empty()
          ? ""
          : absl::StrCat(", and ranks ", absl::StrJoin(sharers, ", "), " would have one of them"),
      ": start a rank for each GPU, let ranks share them by --oversubscribe-devices, or use "
      "--device=cpu"));
}

absl::StatusOr<RankDevice> ChooseDevice(const DeviceChoice& choice) {
  const RankDevice cpu = {.device = topology::DescribeCpu()};
  if (choice.asked == DeviceKind::kCpu) return cpu;
  const absl::StatusOr<SeenGpus> gpus = kernels::ListCudaDevices();
  if (!choice.asked.has_value()) {
    const std::string no_gpu = WhyNone(gpus);
    if (!no_gpu.empty()) return RankDevice{.device = cpu.device, .no_gpu = no_gpu};
  }
  SKEIN_RETURN_IF_ERROR(gpus.status());
  DeviceChoice known = choice;
  if (known.seen.empty()) known.seen = {*gpus};
  SKEIN_ASSIGN_OR_RETURN(const GpuShare share, ShareOfGpus(known));
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaDevice found, kernels::DescribeCudaDevice(share.gpu));
  RankDevice device = {.device = {.kind = DeviceKind::kCuda,
                                  .name = found.name,
                                  .memory_bytes = found.free_bytes / share.sharers},
                       .gpu = share.gpu,
                       .uuid = (*gpus)[share.gpu],
                       .pci_address = found.pci_address};
  const absl::StatusOr<topology::GpuState> state = topology::AskNvml(device.uuid);
  NameSlice(state, device);
  device.users = NameUsers(state);
  return device;
}

}  // namespace skein::worker
