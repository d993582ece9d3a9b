#include "base/processes.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace skein {
namespace {

// The parent by /proc/PID/stat: "PID (NAME) STATE PARENT ...", where NAME may hold anything.
// Nothing where the process is gone or a zombie; 0 where its parent is in another PID namespace.
std::optional<pid_t> LiveParent(pid_t pid) {
  const std::string stat = ReadFileOrEmpty(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(name_end + 1));
  char state = 'Z';
  pid_t parent = 0;
  rest >> state >> parent;
  if (state == 'Z' || state == 'X') return std::nullopt;
  return parent;
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> all;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &pid)) all.push_back(pid);
  }
  return all;
}

std::vector<std::string> Environment(pid_t pid) {
  return absl::StrSplit(ReadFileOrEmpty(absl::StrCat("/proc/", pid, "/environ")), '\0');
}

bool HasMark(pid_t pid, std::string_view mark) {
  const std::vector<std::string> environment = Environment(pid);
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.starts_with(mark); });
}

}  // namespace

std::vector<pid_t> FindStarted(pid_t root, std::string_view mark, const std::set<pid_t>& spared) {
  std::multimap<pid_t, pid_t> children;
  std::vector<pid_t> to_visit;
  for (const pid_t pid : AllProcesses()) {
    const std::optional<pid_t> parent = LiveParent(pid);
    if (!parent) continue;
    children.emplace(*parent, pid);
    if (pid == root || (!mark.empty() && HasMark(pid, mark))) to_visit.push_back(pid);
  }
  std::set<pid_t> found;
  while (!to_visit.empty()) {
    const pid_t pid = to_visit.back();
    to_visit.pop_back();
    if (spared.contains(pid) || !found.insert(pid).second) continue;
    const auto [first, last] = children.equal_range(pid);
    for (auto child = first; child != last; ++child) to_visit.push_back(child->second);
  }
  return {found.begin(), found.end()};
}

std::vector<pid_t> KillStarted(pid_t root, std::string_view mark) {
  std::vector<pid_t> started = FindStarted(root, mark);
  for (const pid_t pid : started) kill(pid, SIGKILL);
  return started;
}

std::vector<pid_t> KillThoseWith(std::string_view with, std::string_view without) {
  std::vector<pid_t> killed;
  for (const pid_t pid : AllProcesses()) {
    const std::vector<std::string> environment = Environment(pid);
    const auto has = [&](std::string_view entry) {
      return std::find(environment.begin(), environment.end(), entry) != environment.end();
    };
    if (!has(with) || has(without) || !LiveParent(pid)) continue;
    if (kill(pid, SIGKILL) == 0) killed.push_back(pid);
  }
  return killed;
}

}  // namespace skein
