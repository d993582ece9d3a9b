#include "coordinator/model_argument.h"

#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/named_path.h"
#include "base/printable.h"
#include "coordinator/model_flags.h"
#include "parallel/planner/planning_flags.h"

namespace skein::coordinator {

void DeclareModelFlags(CLI::App& app, ModelArgument& model) {
  app.add_option("--chat-template", model.chat_template,
                 "File with the Jinja template that makes prompts of chats; default: the model's")
      ->check(NotEmpty());
  plan::DeclarePlanning(app, model.limits.constraints);
  app.add_option("--max-queue", model.limits.max_queue,
                 "Requests that wait for a replica; more are refused with RESOURCE_EXHAUSTED")
      ->check(InRange<int64_t>(0))
      ->capture_default_str();
}

absl::StatusOr<ModelArgument> ParseModelArgument(const std::string& text,
                                                 const ModelArgument& defaults) {
  const size_t flags = text.find(" --");
  NamedPath named = ParseNamedPath(std::string_view(text).substr(0, flags));
  if (named.path.empty()) return absl::InvalidArgumentError("the path is empty");
  for (const std::string& name : named.names) {
    if (!name.empty() && name.size() <= kMaxNameBytes && Printable(name) == name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name), "' is no name for a model"));
  }
  ModelArgument model = defaults;
  model.names = std::move(named.names);
  model.path = std::move(named.path);
  if (flags == std::string::npos) return model;
  CLI::App app;
  app.set_help_flag();
  DeclareModelFlags(app, model);
  try {
    app.parse(text.substr(flags + 1));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.what(), " (of a model's own flags, in '", Printable(text), "')"));
  }
  return model;
}

}  // namespace skein::coordinator
