#include "client/keys.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/flags/flags.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace skein::client {
namespace {

CLI::App* AddCommand(CLI::App& command, KeysFlags& flags, const char* name, const char* help) {
  CLI::App* added = command.add_subcommand(name, help);
  added->add_option("file", flags.file, "The file of keys")->required()->check(NotEmpty());
  return added;
}

void AddName(CLI::App& command, KeysFlags& flags) {
  command.add_option("name", flags.name, "Whose key it is")->required()->check(NotEmpty());
}

void AddLimit(CLI::App& command, const char* flag, std::optional<int64_t>& limit,
              const char* help) {
  command.add_option(flag, limit, help)->check(InRange<int64_t>(1));
}

absl::Status Add(const KeysFlags& flags) {
  SKEIN_ASSIGN_OR_RETURN(const std::string key, serving::NewApiKey());
  SKEIN_RETURN_IF_ERROR(serving::AddKey(
      flags.file, {.name = flags.name, .hash = serving::HashOfKey(key), .limits = flags.limits}));
  std::fprintf(stderr,
               "The key of %s, which is not shown again. A coordinator that runs takes it after "
               "SIGHUP:\n",
               flags.name.c_str());
  absl::PrintF("%s\n", key);
  return absl::OkStatus();
}

// "-": no limit.
std::string LimitText(const std::optional<int64_t>& limit) {
  return limit.has_value() ? absl::StrCat(*limit) : "-";
}

absl::Status List(const KeysFlags& flags) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<serving::ApiKey> keys, serving::ReadKeys(flags.file));
  size_t width = 4;
  for (const serving::ApiKey& key : keys) width = std::max(width, key.name.size());
  const auto row = [width](const std::string& name, const std::string& requests,
                           const std::string& tokens, const std::string& streams,
                           const std::string& rest) {
    absl::PrintF("%-*s  %12s  %10s  %7s  %s\n", static_cast<int>(width), name, requests, tokens,
                 streams, rest);
  };
  row("name", "requests/min", "tokens/min", "streams", "models");
  for (const serving::ApiKey& key : keys) {
    std::string rest = key.models.empty() ? "all" : Printable(absl::StrJoin(key.models, ","));
    if (key.disabled) rest += ", disabled";
    row(key.name, LimitText(key.limits.requests_per_minute),
        LimitText(key.limits.tokens_per_minute), LimitText(key.limits.streams), rest);
  }
  return absl::OkStatus();
}

}  // namespace

void DeclareKeys(CLI::App& command, KeysFlags& flags) {
  command.require_subcommand(1);
  flags.add = AddCommand(command, flags, "add", "Make a key, print it, and add its hash");
  AddName(*flags.add, flags);
  AddLimit(*flags.add, "--requests-per-minute", flags.limits.requests_per_minute,
           "Requests that it may begin in any minute; default: any number");
  AddLimit(*flags.add, "--tokens-per-minute", flags.limits.tokens_per_minute,
           "Tokens of prompts and answers in any minute; default: any number");
  AddLimit(*flags.add, "--streams", flags.limits.streams,
           "Requests that are answered at once; default: any number");
  flags.list = AddCommand(command, flags, "list", "Show names and limits");
  flags.remove = AddCommand(command, flags, "remove", "Take a key away");
  AddName(*flags.remove, flags);
  command.footer(
      "`coordinator --api-keys FILE` asks for these keys, and reads them again on "
      "SIGHUP.");
}

int Keys(const KeysFlags& flags) {
  const absl::Status done = flags.add->parsed()    ? Add(flags)
                            : flags.list->parsed() ? List(flags)
                                                   : serving::RemoveKey(flags.file, flags.name);
  if (done.ok()) return kExitOk;
  std::fprintf(stderr, "skein: %s\n", std::string(done.message()).c_str());
  return kExitError;
}

}  // namespace skein::client
