#include "base/flags/config_syntax.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein {
namespace {

bool InName(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; }

bool IsName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), InName);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<ConfigEntry>> Parse() {
    absl::Status status;
    while (status.ok() && SkipBlank(/*lines=*/true)) {
      status = text_[at_] == '[' ? Section() : Entry();
      if (status.ok()) status = EndOfLine();
    }
    if (!status.ok()) return status;
    return std::move(entries_);
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": ", absl::string_view(what.data(), what.size())));
  }

  // Skips blanks and comments, and ends of lines with `lines`; false at the end of the text.
  bool SkipBlank(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size() || (text_[at_] == '\n' && !lines)) break;
      if (text_[at_] == '\n') ++line_;
      if (!absl::ascii_isspace(text_[at_])) return true;
    }
    return at_ < text_.size();
  }

  absl::Status EndOfLine() {
    if (!SkipBlank(/*lines=*/false) || text_[at_] == '\n') return absl::OkStatus();
    return Error("something stands behind what the line says; text with blanks or # has quotes");
  }

  std::string_view Word() {
    const size_t start = at_;
    while (at_ < text_.size() && InName(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  absl::Status Section() {
    const size_t end = text_.find_first_of("]\n", at_);
    if (end == text_.npos || text_[end] != ']') return Error("a section is written as [NAME]");
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    section_ = absl::StrSplit(name, '.');
    if (!std::all_of(section_.begin(), section_.end(), IsName)) {
      return Error(absl::StrCat("a section is written as [NAME] or [NAME.NAME], not [", name, "]"));
    }
    at_ = end + 1;
    return absl::OkStatus();
  }

  absl::Status Entry() {
    ConfigEntry entry{.section = section_, .line = line_};
    entry.key = std::string(Word());
    SkipBlank(/*lines=*/false);
    if (entry.key.empty() || at_ == text_.size() || text_[at_] != '=') {
      return Error("expected KEY = VALUE, or [SECTION]");
    }
    ++at_;
    const bool more = SkipBlank(/*lines=*/false);
    if (!more || text_[at_] == '\n') return Error(absl::StrCat(entry.key, " has no value"));
    entry.list = text_[at_] == '[';
    const absl::Status status = entry.list ? List(entry.values) : Value("#\n", entry.values);
    if (!status.ok()) return status;
    entries_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  absl::Status List(std::vector<std::string>& values) {
    ++at_;
    while (true) {
      if (!SkipBlank(/*lines=*/true)) return Error("a list has no ]");
      if (text_[at_] == ']') break;
      if (const absl::Status status = Value("#\n,]", values); !status.ok()) return status;
      if (!SkipBlank(/*lines=*/true)) return Error("a list has no ]");
      if (text_[at_] == ']') break;
      if (text_[at_] != ',') return Error("values of a list are parted by commas");
      ++at_;
    }
    ++at_;
    return absl::OkStatus();
  }

  // Text without quotes goes on to one of `ends`.
  absl::Status Value(const char* ends, std::vector<std::string>& values) {
    if (text_[at_] == '"' || text_[at_] == '\'') return Quoted(values);
    const size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    const std::string bare(text_.substr(at_, end - at_));
    at_ = end;
    values.emplace_back(absl::StripAsciiWhitespace(bare));
    if (values.back().empty()) return Error("a value is missing; an empty one is written as \"\"");
    if (values.back().find_first_of("\"'") != std::string::npos) {
      return Error(absl::StrCat("text with quotes in it has quotes around it: ", values.back()));
    }
    return absl::OkStatus();
  }

  // Between ' and ' all stands for itself.
  absl::Status Quoted(std::vector<std::string>& values) {
    const char quote = text_[at_++];
    std::string value;
    for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        values.push_back(std::move(value));
        return absl::OkStatus();
      }
      if (quote == '\'' || text_[at_] != '\\') {
        value += text_[at_];
        continue;
      }
      constexpr std::string_view kNames = "\"\\ntr";
      constexpr std::string_view kMeant = "\"\\\n\t\r";
      const char name = ++at_ < text_.size() ? text_[at_] : '\n';
      const size_t which = kNames.find(name);
      if (which == kNames.npos) return Error("behind \\ comes one of \", \\, n, t and r");
      value += kMeant[which];
    }
    return Error("a quote does not end on its line");
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<std::string> section_;
  std::vector<ConfigEntry> entries_;
};

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(const std::string& text) {
  return Parser(text).Parse();
}

std::string QuoteConfigValue(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    switch (c) {
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '"':
      case '\\':
        quoted += '\\';
        [[fallthrough]];
      default:
        quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace skein
