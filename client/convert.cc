#include "client/convert.h"

#include <cstdio>
#include <map>
#include <optional>

#include "absl/strings/str_format.h"
#include "base/bench/report.h"
#include "base/dtype.h"
#include "base/flags/flags.h"
#include "base/printable.h"
#include "base/units.h"
#include "client/gguf_output.h"
#include "model/convert/convert.h"

namespace skein::client {
namespace {

const std::map<std::string, std::optional<DType>>& Types() {
  static const auto* const types = new std::map<std::string, std::optional<DType>>{
      {"keep", std::nullopt},
      {"f32", DType::kF32},
      {"f16", DType::kF16},
      {"bf16", DType::kBF16},
  };
  return *types;
}

}  // namespace

void DeclareConvert(CLI::App& command, ConvertFlags& flags) {
  command.add_option("MODEL", flags.model, "A model's folder, as Hugging Face has it")
      ->required()
      ->check(NotEmpty());
  DeclareGgufOutput(command, flags.out, flags.max_file_bytes);
  command
      .add_option("--type", flags.type, "Type of matrices; keep: as they are. Vectors become f32")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16"}))
      ->capture_default_str();
  command.footer(
      "What a GGUF file has no word for (a tokenizer's or an architecture's) is refused by name.");
}

int Convert(const ConvertFlags& flags) {
  model::ConvertOptions options;
  options.matrices = Types().at(flags.type);
  options.max_file_bytes = flags.max_file_bytes;
  options.on_progress = GgufProgress();
  const absl::StatusOr<model::Converted> made =
      model::ConvertToGguf(flags.model, flags.out, options);
  ShowProgress("");
  if (!made.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", made.status().message());
    return kExitError;
  }
  for (const std::string& file : made->files) absl::PrintF("%s\n", Printable(file));
  absl::PrintF("%s of %s; %s, %s\n", FormatCount(made->tensors, "tensor"), FormatBytes(made->bytes),
               made->has_vocabulary ? "with its vocabulary"
                                    : "without a vocabulary: the folder has no tokenizer",
               made->has_chat_template ? "with its chat template" : "without a chat template");
  return kExitOk;
}

}  // namespace skein::client
