#include "client/memory.h"

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/flags/flags.h"
#include "base/flags/parse_device_kind.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/read_model.h"
#include "parallel/plan/plan.h"
#include "proto/message_json.h"
#include "proto/plan.pb.h"

namespace skein::client {
namespace {

using plan::LayoutMemory;
using plan::MemoryOfLayouts;
using plan::RankMemory;

// "tp=2,pp=2": of one replica, all of which are alike.
std::string LayoutName(const plan::Layout& layout) {
  return absl::StrCat("tp=", layout.tp_size, ",pp=", layout.pp_size);
}

int64_t OtherBytes(const RankMemory& rank) {
  return rank.context_bytes + rank.graph_bytes + rank.exchange_bytes;
}

void Print(const std::string& model, const plan::MemoryTask& task, const MemoryOfLayouts& found) {
  const bool gpus = task.device == DeviceKind::kCuda;
  absl::PrintF("%s on %s: %s of %d tokens each, keys and values in %s\n\n", model,
               gpus ? "GPUs" : "cores", FormatCount(found.streams, "stream"), found.context_length,
               plan::KvDTypeName(found.kv_dtype));
  absl::PrintF("%-12s %5s %11s %11s %11s %11s %11s %12s\n", "layout", "ranks", "a rank", "weights",
               "KV", "buffers", "other", gpus ? "of its host" : "process");
  for (const LayoutMemory& of : found.layouts) {
    const RankMemory& rank = of.rank;
    absl::PrintF("%-12s %5d %11s %11s %11s %11s %11s %12s\n", LayoutName(of.layout),
                 of.layout.ranks(), FormatBytes(gpus ? rank.device_bytes() : rank.total()),
                 FormatBytes(rank.weight_bytes), FormatBytes(rank.kv_bytes),
                 FormatBytes(rank.activation_bytes), FormatBytes(OtherBytes(rank)),
                 FormatBytes(rank.process_bytes()));
  }
  const char* const explained =
      gpus ? "a rank: the fullest one, of its GPU: weights, KV, buffers and other, which are\n"
             "context, libraries, graphs and exchanges. Plans take 7/8 of what a GPU has free.\n"
           : "a rank: the fullest one, with its process. Plans take 7/8 of what a host has free.\n";
  absl::PrintF("\n%s", explained);
  for (const plan::RejectedLayout& rejected : found.rejected) {
    absl::PrintF("%s cannot be: %s\n", LayoutName(rejected.layout), rejected.reason);
  }
}

void PrintJson(const MemoryOfLayouts& found) {
  plan::v1::MemoryOfLayouts wire;
  wire.set_context_length(found.context_length);
  wire.set_streams(found.streams);
  wire.set_kv_dtype(std::string(plan::KvDTypeName(found.kv_dtype)));
  for (const LayoutMemory& of : found.layouts) {
    plan::v1::LayoutMemory& to = *wire.add_layouts();
    to.set_layout(LayoutName(of.layout));
    to.set_ranks(of.layout.ranks());
    to.set_stage(of.stage);
    to.set_first_layer(of.layers.begin);
    to.set_layers(of.layers.size());
    to.set_device_bytes(of.rank.device_bytes());
    to.set_weight_bytes(of.rank.weight_bytes);
    to.set_kv_bytes(of.rank.kv_bytes);
    to.set_buffer_bytes(of.rank.activation_bytes);
    to.set_other_bytes(OtherBytes(of.rank));
    to.set_process_bytes(of.rank.process_bytes());
  }
  for (const plan::RejectedLayout& rejected : found.rejected) {
    plan::v1::RejectedLayout& to = *wire.add_rejected();
    to.set_layout(LayoutName(rejected.layout));
    to.set_reason(rejected.reason);
  }
  absl::PrintF("%s\n", ToJson(wire));
}

absl::Status Run(const MemoryFlags& flags) {
  const absl::StatusOr<plan::ModelFacts> model = ReadModel(flags.model);
  if (!model.ok()) return Annotate(model.status(), "MODEL");
  const absl::StatusOr<MemoryOfLayouts> found =
      plan::FindMemoryOfLayouts(model->config, flags.task);
  if (!found.ok()) return Annotate(found.status(), "--context");
  if (flags.json) {
    PrintJson(*found);
  } else {
    Print(flags.model, flags.task, *found);
  }
  return absl::OkStatus();
}

}  // namespace

void DeclareMemory(CLI::App& command, MemoryFlags& flags) {
  command.add_option("MODEL", flags.model, "A model's folder, a GGUF file, or synthetic:NAME")
      ->required()
      ->check(NotEmpty());
  command
      .add_option("--context", flags.task.context_length,
                  "Tokens of prompt and answer together; 0 takes the model's")
      ->check(InRange(int64_t{0}))
      ->capture_default_str();
  command
      .add_option("--streams", flags.task.streams,
                  "Sequences that a replica runs at once, each with a full context; 0: as many as "
                  "coordinators take, 256 on GPUs and 16 on cores")
      ->check(InRange(0, plan::kMaxNumSeqs))
      ->capture_default_str();
  AddParsed(command, "--device", flags.task.device, ParseDeviceKind, "What computes: cpu or cuda")
      ->default_str("cuda");
  AddParsed(command, "--kv-dtype", flags.task.kv_dtype, plan::ParseKvDType,
            "How keys and values are kept, as a coordinator's --kv-dtype has it")
      ->default_str("f32, on GPUs what they compute in");
  command.add_flag("--deterministic", flags.task.deterministic,
                   "As of a coordinator that is given this flag");
  command
      .add_option("--most-ranks", flags.task.most_ranks, "Of a replica: layouts of 1, 2, 4, ...")
      ->check(InRange(1, plan::kMaxWays))
      ->capture_default_str();
  command.add_flag("--json", flags.json, "Print JSON");
}

int Memory(const MemoryFlags& flags) {
  const absl::Status status = Run(flags);
  if (status.ok()) return kExitOk;
  absl::FPrintF(stderr, "skein: %s\n", std::string(status.message()));
  return kExitError;
}

}  // namespace skein::client
