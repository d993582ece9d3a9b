#include "serving/keys/key_file.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::serving {
namespace {

constexpr absl::string_view kHashPrefix = "sha256:";
constexpr size_t kHashDigits = 2 * std::tuple_size_v<KeyHash>;
constexpr size_t kMaxName = 64;

std::vector<absl::string_view> Words(absl::string_view line) {
  return absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"),
                        absl::SkipEmpty());
}

absl::StatusOr<KeyHash> ParseHash(absl::string_view text) {
  const absl::string_view digits = absl::StripPrefix(text, kHashPrefix);
  if (digits.size() == text.size() || digits.size() != kHashDigits ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError("sha256: and 64 hex digits are expected behind the name");
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  KeyHash hash;
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

absl::Status ParseCount(absl::string_view text, std::optional<int64_t>& count) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1) {
    return absl::InvalidArgumentError("a whole number of at least 1 is expected");
  }
  count = value;
  return absl::OkStatus();
}

absl::Status ParseSetting(absl::string_view name, absl::string_view value, ApiKey& key) {
  if (name == "requests-per-minute") return ParseCount(value, key.limits.requests_per_minute);
  if (name == "tokens-per-minute") return ParseCount(value, key.limits.tokens_per_minute);
  if (name == "streams") return ParseCount(value, key.limits.streams);
  if (name == "models") {
    key.models = absl::StrSplit(value, ',', absl::SkipEmpty());
    return key.models.empty() ? absl::InvalidArgumentError("names of models are expected")
                              : absl::OkStatus();
  }
  if (name == "disabled") {
    key.disabled = value == "yes";
    return key.disabled || value == "no" ? absl::OkStatus()
                                         : absl::InvalidArgumentError("yes or no is expected");
  }
  return absl::InvalidArgumentError(
      "there is no such setting; requests-per-minute, tokens-per-minute, streams, models and "
      "disabled there are");
}

absl::StatusOr<ApiKey> ParseLine(const std::vector<absl::string_view>& words) {
  ApiKey key;
  SKEIN_RETURN_IF_ERROR(CheckKeyName({words[0].data(), words[0].size()}));
  key.name = std::string(words[0]);
  SKEIN_ASSIGN_OR_RETURN(key.hash, ParseHash(words.size() > 1 ? words[1] : ""));
  std::set<absl::string_view> said;
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError("settings are NAME=VALUE");
    }
    const absl::string_view name = words[i].substr(0, equals);
    const std::string quoted = Printable({name.data(), name.size()}, kMaxName);
    if (!said.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat(quoted, " is said twice"));
    }
    SKEIN_RETURN_IF_ERROR(Annotate(ParseSetting(name, words[i].substr(equals + 1), key), quoted));
  }
  return key;
}

std::string Base64Url(const KeyHash& bytes) {
  std::string text;
  absl::WebSafeBase64Escape({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, &text);
  return text;
}

// A new file, which is also the lock of the old one: nobody else has it, and it goes unless it was
// renamed.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    error_ = errno;
  }
  ~NewFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;

  absl::Status status() const {
    if (descriptor_ >= 0) return absl::OkStatus();
    return error_ == EEXIST
               ? absl::AlreadyExistsError(absl::StrCat(
                     path_,
                     " is there: somebody else changes the keys, or was stopped in the "
                     "middle of it; remove it then"))
               : ErrnoStatus(error_, path_);
  }

  absl::Status Become(const std::string& path, std::string_view contents) {
    while (!contents.empty()) {
      const ssize_t written = write(descriptor_, contents.data(), contents.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ErrnoStatus(errno, path_);
      contents.remove_prefix(static_cast<size_t>(written));
    }
    SKEIN_RETURN_IF_ERROR(KeepOwner(path));
    if (fsync(descriptor_) != 0) return ErrnoStatus(errno, path_);
    if (std::rename(path_.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, path);
    close(std::exchange(descriptor_, -1));
    return absl::OkStatus();
  }

 private:
  // Who could read the file that is replaced, a coordinator of another user, still can.
  absl::Status KeepOwner(const std::string& path) const {
    struct stat before{};
    if (stat(path.c_str(), &before) != 0) return absl::OkStatus();  // it is new
    struct stat now{};
    fstat(descriptor_, &now);
    const bool same = now.st_uid == before.st_uid && now.st_gid == before.st_gid;
    if ((!same && fchown(descriptor_, before.st_uid, before.st_gid) != 0) ||
        fchmod(descriptor_, before.st_mode & 0640) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot keep owner and mode of ", path));
    }
    return absl::OkStatus();
  }

  const std::string path_;
  int descriptor_;
  int error_;
};

// `edit` gets the file's text and keys.
using Edit = std::function<absl::StatusOr<std::string>(const std::string& text,
                                                       const std::vector<ApiKey>& keys)>;

absl::Status EditFile(const std::string& named, bool may_be_absent, const Edit& edit) {
  // A link stays a link.
  std::error_code ignored;
  const std::filesystem::path followed = std::filesystem::canonical(named, ignored);
  const std::string path = ignored ? named : followed.string();
  NewFile made(path + ".new");
  SKEIN_RETURN_IF_ERROR(made.status());
  absl::StatusOr<std::string> text = ReadFile(path, kMaxKeyFileBytes);
  if (absl::IsNotFound(text.status()) && may_be_absent) text = "";
  SKEIN_RETURN_IF_ERROR(text.status());
  const absl::StatusOr<std::vector<ApiKey>> keys = ParseKeys(*text);
  if (!keys.ok()) return Annotate(keys.status(), path);
  const absl::StatusOr<std::string> edited = edit(*text, *keys);
  if (!edited.ok()) return Annotate(edited.status(), path);
  // What nobody could read back is not written.
  SKEIN_RETURN_IF_ERROR(Annotate(ParseKeys(*edited).status(), path));
  return made.Become(path, *edited);
}

bool Has(const std::vector<ApiKey>& keys, std::string_view name) {
  return std::any_of(keys.begin(), keys.end(), [&](const ApiKey& key) { return key.name == name; });
}

}  // namespace

absl::StatusOr<std::string> NewApiKey() {
  KeyHash random;
  if (RAND_bytes(random.data(), random.size()) != 1) {
    return absl::InternalError("the system has no random numbers");
  }
  return absl::StrCat("sk-skein-", Base64Url(random));
}

KeyHash HashOfKey(std::string_view key) {
  KeyHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

absl::Status CheckKeyName(std::string_view name) {
  const bool fits = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
  });
  if (fits && !name.empty() && name.size() <= kMaxName) return absl::OkStatus();
  return absl::InvalidArgumentError("a name has 1 to 64 letters, digits, '-', '_', '.' and '@'");
}

absl::StatusOr<std::vector<ApiKey>> ParseKeys(std::string_view text) {
  std::vector<ApiKey> keys;
  std::set<std::string> names;
  std::set<KeyHash> hashes;
  int64_t number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const std::vector<absl::string_view> words = Words(line);
    if (words.empty()) continue;
    const auto wrong = [&](std::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", absl::string_view(why.data(), why.size())));
    };
    absl::StatusOr<ApiKey> key = ParseLine(words);
    if (!key.ok()) return wrong(std::string(key.status().message()));
    if (!names.insert(key->name).second) return wrong(absl::StrCat(key->name, " is named twice"));
    if (!hashes.insert(key->hash).second) {
      return wrong(absl::StrCat("the key of ", key->name, " has another name, too"));
    }
    if (std::ssize(keys) == kMaxKeys) return wrong(absl::StrCat("more than ", kMaxKeys, " keys"));
    keys.push_back(*std::move(key));
  }
  return keys;
}

absl::StatusOr<std::vector<ApiKey>> ReadKeys(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeyFileBytes));
  absl::StatusOr<std::vector<ApiKey>> keys = ParseKeys(text);
  if (!keys.ok()) return Annotate(keys.status(), path);
  return keys;
}

std::string KeyLine(const ApiKey& key) {
  std::string line = absl::StrCat(
      key.name, " ", kHashPrefix,
      absl::BytesToHexString({reinterpret_cast<const char*>(key.hash.data()), key.hash.size()}));
  for (const auto& [name, limit] :
       {std::pair("requests-per-minute", key.limits.requests_per_minute),
        std::pair("tokens-per-minute", key.limits.tokens_per_minute),
        std::pair("streams", key.limits.streams)}) {
    if (limit.has_value()) absl::StrAppend(&line, " ", name, "=", *limit);
  }
  if (!key.models.empty()) absl::StrAppend(&line, " models=", absl::StrJoin(key.models, ","));
  if (key.disabled) absl::StrAppend(&line, " disabled=yes");
  return line;
}

absl::Status AddKey(const std::string& path, const ApiKey& key) {
  SKEIN_RETURN_IF_ERROR(CheckKeyName(key.name));
  return EditFile(
      path, /*may_be_absent=*/true,
      [&](const std::string& text, const std::vector<ApiKey>& keys) -> absl::StatusOr<std::string> {
        if (Has(keys, key.name)) {
          return absl::AlreadyExistsError(absl::StrCat("there is a key of ", key.name, " already"));
        }
        const char* const feed = text.empty() || text.back() == '\n' ? "" : "\n";
        return absl::StrCat(text, feed, KeyLine(key), "\n");
      });
}

absl::Status RemoveKey(const std::string& path, std::string_view name) {
  return EditFile(
      path, /*may_be_absent=*/false,
      [&](const std::string& text, const std::vector<ApiKey>& keys) -> absl::StatusOr<std::string> {
        if (!Has(keys, name)) {
          return absl::NotFoundError(
              absl::StrCat("there is no key of ", Printable(name, kMaxNameBytes)));
        }
        std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
        std::erase_if(lines, [&](absl::string_view line) {
          const std::vector<absl::string_view> words = Words(line);
          return !words.empty() && words[0] == absl::string_view(name.data(), name.size());
        });
        return absl::StrJoin(lines, "\n");
      });
}

}  // namespace skein::serving
