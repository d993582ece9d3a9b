#include "client/quantize.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bench/report.h"
#include "base/dtype.h"
#include "base/flags/flags.h"
#include "base/printable.h"
#include "base/units.h"
#include "client/gguf_output.h"
#include "model/quantize/quantize.h"
#include "model/quantize/recipes.h"
#include "topology/host/cores.h"

namespace skein::client {
namespace {

std::string Types() {
  std::vector<std::string> names;
  for (const model::Recipe& recipe : model::Recipes()) names.emplace_back(recipe.name);
  return absl::StrJoin(names, ", ");
}

std::string CheckType(const std::string& name) {
  return std::string(model::FindRecipe(name).status().message());
}

// "5 tensors (a, b, c, ...)"
std::string Some(const std::vector<std::string>& tensors) {
  constexpr size_t kMost = 3;
  const size_t shown = std::min(tensors.size(), kMost);
  return absl::StrCat(
      FormatCount(static_cast<int64_t>(tensors.size()), "tensor"), " (",
      absl::StrJoin(tensors.begin(), tensors.begin() + static_cast<ptrdiff_t>(shown), ", "),
      shown < tensors.size() ? ", ..." : "", ")");
}

double BitsPerWeight(int64_t bytes, int64_t weights) {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

void Print(const model::Quantized& made) {
  for (const std::string& file : made.files) absl::PrintF("%s\n", Printable(file));
  std::vector<std::string> types;
  for (const auto& [type, elements] : made.elements) {
    types.push_back(
        absl::StrFormat("%s %.1f%%", DTypeName(type),
                        100.0 * static_cast<double>(elements) / static_cast<double>(made.weights)));
  }
  absl::PrintF("%s of tensors, from %s; %.2f bits a weight, from %.2f; weights in %s\n",
               FormatBytes(made.bytes), FormatBytes(made.bytes_before),
               BitsPerWeight(made.bytes, made.weights),
               BitsPerWeight(made.bytes_before, made.weights), absl::StrJoin(types, ", "));
  if (!made.without_importance.empty()) {
    absl::PrintF("--imatrix tells nothing of %s\n", Some(made.without_importance));
  }
  if (made.experts_without_importance > 0) {
    absl::PrintF(
        "--imatrix tells nothing of experts that its text never chose: %d of their matrices\n",
        made.experts_without_importance);
  }
  if (!made.fallen_back.empty()) {
    absl::PrintF("of another type, as rows are no whole blocks: %s\n", Some(made.fallen_back));
  }
}

}  // namespace

void DeclareQuantize(CLI::App& command, QuantizeFlags& flags) {
  command
      .add_option("MODEL", flags.model,
                  "A GGUF file, or a model's folder as Hugging Face has it, in F32, F16 or BF16")
      ->required()
      ->check(NotEmpty());
  DeclareGgufOutput(command, flags.out, flags.max_file_bytes);
  command
      .add_option("--type", flags.type,
                  absl::StrCat("What llama.cpp's files of the name have: ", Types()))
      ->check(CheckType)
      ->type_name("TYPE")
      ->capture_default_str();
  command
      .add_option("--imatrix", flags.importance_file,
                  "Err least where inputs are large, by this file, which `skein imatrix` writes")
      ->check(NotEmpty());
  command
      .add_option("--threads", flags.threads, "0: as many as the cores that this process may use")
      ->check(InRange(0, 1024))
      ->capture_default_str();
  command.footer(
      "What types cost in size and in quality: docs/quantisation.md. `skein perplexity` measures "
      "it, of any text. For F32, F16 and BF16: `skein convert --type`.");
}

int Quantize(const QuantizeFlags& flags) {
  model::QuantizeOptions options;
  options.recipe = flags.type;
  options.importance_file = flags.importance_file;
  options.threads = flags.threads > 0 ? flags.threads : topology::AffinityCores().value_or(1);
  options.max_file_bytes = flags.max_file_bytes;
  options.on_progress = GgufProgress();
  const absl::StatusOr<model::Quantized> made =
      model::QuantizeToGguf(flags.model, flags.out, options);
  ShowProgress("");
  if (!made.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", made.status().message());
    return kExitError;
  }
  Print(*made);
  return kExitOk;
}

}  // namespace skein::client
