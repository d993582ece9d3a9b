#include "client/inspect.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/flags/flags.h"
#include "base/printable.h"
#include "base/units.h"
#include "model/inspect/inspect.h"
#include "nlohmann/json.hpp"

namespace skein::client {
namespace {

using model::Inspection;
using model::TensorClass;

constexpr int kExitRefused = 3;

// "Q4_K 90%, Q6_K 10%"
std::string Types(const TensorClass& of) {
  std::vector<std::string> parts;
  for (const auto& [dtype, elements] : of.elements_of) {
    const double share =
        of.elements == 0 ? 0
                         : 100.0 * static_cast<double>(elements) / static_cast<double>(of.elements);
    parts.push_back(of.elements_of.size() == 1
                        ? std::string(DTypeName(dtype))
                        : absl::StrFormat("%s %.0f%%", std::string(DTypeName(dtype)), share));
  }
  return absl::StrJoin(parts, ", ");
}

void PrintLine(const char* what, const std::string& value) {
  if (!value.empty()) absl::PrintF("%-14s %s\n", what, Printable(value));
}

void Print(const Inspection& found) {
  PrintLine("format", found.files == 0
                          ? found.format
                          : absl::StrCat(found.format, ", ", FormatCount(found.files, "file"),
                                         " of ", FormatBytes(found.file_bytes)));
  PrintLine("name", found.name);
  PrintLine("architecture", found.architecture);
  if (found.parameters > 0) {
    const auto millions = static_cast<double>(found.parameters) / 1e6;
    PrintLine("parameters", millions < 1000 ? absl::StrFormat("%.1f million", millions)
                                            : absl::StrFormat("%.2f billion", millions / 1000));
  }
  if (found.layers > 0) {
    PrintLine("layers",
              absl::StrFormat("%d, of %d, %d heads on %d of keys and values", found.layers,
                              found.hidden_size, found.heads, found.kv_heads));
    PrintLine("context", absl::StrCat(found.context_length, " tokens"));
  }
  if (found.vocab_size > 0) {
    PrintLine("vocabulary", absl::StrCat(found.vocab_size, " tokens, ", found.tokenizer));
  } else {
    PrintLine("vocabulary", found.tokenizer);
  }
  if (!found.end_tokens.empty()) PrintLine("ends with", absl::StrJoin(found.end_tokens, ", "));
  PrintLine("chat template", found.has_chat_template ? "yes" : "none");
  if (!found.classes.empty()) {
    absl::PrintF("\n%-12s %8s %12s %12s %6s  %s\n", "tensors", "number", "elements", "bytes",
                 "bits", "types");
    for (const TensorClass& of : found.classes) {
      absl::PrintF("%-12s %8d %12d %12s %6.2f  %s\n", of.name, of.tensors, of.elements,
                   FormatBytes(of.bytes), of.bits_per_weight(), Types(of));
    }
  }
  absl::PrintF("\n");
  if (found.refusals.empty()) absl::PrintF("Skein runs it.\n");
  for (const std::string& refusal : found.refusals) {
    absl::PrintF("Skein does not run it: %s\n", Printable(refusal));
  }
}

void PrintJson(const Inspection& found) {
  nlohmann::json classes = nlohmann::json::array();
  for (const TensorClass& of : found.classes) {
    nlohmann::json types;
    for (const auto& [dtype, elements] : of.elements_of) {
      types[std::string(DTypeName(dtype))] = elements;
    }
    classes.push_back({{"name", of.name},
                       {"tensors", of.tensors},
                       {"elements", of.elements},
                       {"bytes", of.bytes},
                       {"bits_per_weight", of.bits_per_weight()},
                       {"elements_by_type", types}});
  }
  const nlohmann::json json = {{"format", found.format},
                               {"name", found.name},
                               {"architecture", found.architecture},
                               {"files", found.files},
                               {"file_bytes", found.file_bytes},
                               {"parameters", found.parameters},
                               {"layers", found.layers},
                               {"hidden_size", found.hidden_size},
                               {"heads", found.heads},
                               {"kv_heads", found.kv_heads},
                               {"context_length", found.context_length},
                               {"tokenizer", found.tokenizer},
                               {"vocab_size", found.vocab_size},
                               {"end_tokens", found.end_tokens},
                               {"has_chat_template", found.has_chat_template},
                               {"tensors", classes},
                               {"runs", found.refusals.empty()},
                               {"refusals", found.refusals}};
  // Names come from strangers: what is not UTF-8 is replaced.
  absl::PrintF("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void DeclareInspect(CLI::App& command, InspectFlags& flags) {
  command.add_option("MODEL", flags.model, "A model's folder, or a GGUF file")
      ->required()
      ->check(NotEmpty());
  command.add_flag("--json", flags.json, "Print JSON");
  command.footer("Exit status: 0 Skein runs it, 3 it does not.");
}

int Inspect(const InspectFlags& flags) {
  std::error_code ignored;
  if (!std::filesystem::exists(flags.model, ignored)) {
    absl::FPrintF(stderr, "skein: MODEL: there is no file or folder '%s'\n", flags.model);
    return kExitError;
  }
  const Inspection found = model::Inspect(flags.model);
  if (flags.json) {
    PrintJson(found);
  } else {
    Print(found);
  }
  return found.refusals.empty() ? kExitOk : kExitRefused;
}

}  // namespace skein::client
