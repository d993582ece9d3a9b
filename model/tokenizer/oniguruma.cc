#include "model/tokenizer/oniguruma.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

// As published by DeepSeek. Beginning inside of white space cannot match what its first character
// could not; the lookbehind says so, or a long run would take quadratic time.
constexpr std::string_view kSpaceAtEnd = R"(\s+$)";

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
  });
}

bool IsAscii(const CodePointSet& set) { return set.edges().empty() || set.edges().back() <= 0x80; }

// With the other case of each of its letters, which are ASCII. Two have a third form.
CodePointSet FoldCase(CodePointSet set) {
  const CodePointSet letters = set;
  for (uint32_t lower = 'a'; lower <= 'z'; ++lower) {
    const uint32_t upper = lower - 'a' + 'A';
    if (!letters.Contains(lower) && !letters.Contains(upper)) continue;
    set.Add(CodePointSet(lower));
    set.Add(CodePointSet(upper));
    if (lower == 's') set.Add(CodePointSet(0x17F));   // long s
    if (lower == 'k') set.Add(CodePointSet(0x212A));  // the sign of Kelvin
  }
  return set;
}

std::string ClassOf(const std::vector<uint8_t>& bytes) {
  if (bytes.empty()) return R"([^\x00-\xff])";
  std::string text = "[";
  for (size_t i = 0; i < bytes.size();) {
    size_t last = i;
    while (last + 1 < bytes.size() && bytes[last + 1] == bytes[last] + 1) ++last;
    absl::StrAppendFormat(&text, R"(\x%02x)", bytes[i]);
    if (last > i) absl::StrAppendFormat(&text, R"(-\x%02x)", bytes[last]);
    i = last + 1;
  }
  return text + "]";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<BytePattern> Run() {
    if (const size_t bad = FindInvalidUtf8(pattern_); bad != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("is not UTF-8 at offset ", bad));
    }
    if (pattern_ == kSpaceAtEnd) {
      Keep("(?<!");
      Match(WhiteSpace());
      Keep(")");
      Match(WhiteSpace());
      Keep("+(?m:$)");  // in Ruby, the end of any line
    } else {
      while (at_ < pattern_.size()) SKEIN_RETURN_IF_ERROR(ReadItem());
    }
    return Assemble();
  }

 private:
  using Member = std::variant<uint32_t, CodePointSet>;

  std::string_view rest() const { return pattern_.substr(at_); }
  bool ignores_case() const { return !ignore_case_.empty() && ignore_case_.back(); }

  absl::Status Unsupported(std::string_view what) const {
    return absl::UnimplementedError(
        absl::StrCat("\"", std::string(what),
                     "\" in a regular expression is not supported: ", std::string(pattern_)));
  }
  absl::Status Broken(std::string_view why, size_t offset) const {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression does not compile: ", std::string(why), " at offset ",
                     offset, " of ", std::string(pattern_)));
  }

  void Keep(std::string_view text) { pieces_.emplace_back(std::string(text)); }
  void Match(CodePointSet set) { pieces_.emplace_back(std::move(set)); }
  void KeepNext(size_t size) {
    Keep(rest().substr(0, size));
    at_ += size;
  }

  absl::Status ReadItem() {
    const char letter_before = std::exchange(letter_before_, '\0');
    const char c = pattern_[at_];
    if (c == '\\' || static_cast<uint8_t>(c) >= 0x80) return ReadCharacter();
    if (c == '[') return ReadClass();
    if (c == '(') return OpenGroup();
    if (c == ')' && !ignore_case_.empty()) ignore_case_.pop_back();
    if (ignores_case() && absl::ascii_isalpha(c)) return ReadLetter(letter_before);
    // Line by line in Ruby; possessive in PCRE2, repeated in Ruby; a number in Ruby and newer
    // PCRE2.
    for (const std::string_view odd : {"^", "$", "}+", "{,"}) {
      if (StartsWithAny(rest(), {odd})) return Unsupported(odd);
    }
    KeepNext(1);
    return absl::OkStatus();
  }

  absl::Status OpenGroup() {
    if (StartsWithAny(rest(), {"(*"})) return Unsupported("(*");  // a verb in PCRE2 only
    const bool ignores_case = this->ignores_case();
    if (StartsWithAny(rest(), {"(?i:"})) {
      Keep("(?:");
      at_ += 4;
      ignore_case_.push_back(true);
      return absl::OkStatus();
    }
    ignore_case_.push_back(ignores_case);
    if (!StartsWithAny(rest(), {"(?"})) {
      KeepNext(1);
      return absl::OkStatus();
    }
    for (const std::string_view known : {"(?:", "(?!", "(?=", "(?<!", "(?<=", "(?>"}) {
      if (!StartsWithAny(rest(), {known})) continue;
      KeepNext(known.size());
      return absl::OkStatus();
    }
    return Unsupported(rest().substr(0, 3));
  }

  // A letter in (?i: ). Oniguruma finds ligatures and sharp s for some pairs, too.
  absl::Status ReadLetter(char letter_before) {
    const char lower = absl::ascii_tolower(pattern_[at_]);
    const std::string pair = {letter_before, lower};
    for (const char* ligature : {"ff", "fi", "fl", "ss", "st"}) {
      if (pair == ligature) return Unsupported(absl::StrCat("(?i:", pair, ")"));
    }
    Match(FoldCase(CodePointSet(static_cast<uint8_t>(lower))));
    letter_before_ = lower;
    ++at_;
    return absl::OkStatus();
  }

  // An escape, or a character beyond ASCII.
  absl::Status ReadCharacter() {
    const size_t begin = at_;
    SKEIN_ASSIGN_OR_RETURN(Member member, ReadMember());
    if (auto* set = std::get_if<CodePointSet>(&member)) {
      Match(std::move(*set));
      return absl::OkStatus();
    }
    const auto c = std::get<uint32_t>(member);
    if (c < 0x80) {
      Keep(pattern_.substr(begin, at_ - begin));
      return absl::OkStatus();
    }
    if (ignores_case()) return Unsupported("(?i:" + std::string(pattern_.substr(begin)));
    Match(CodePointSet(c));
    return absl::OkStatus();
  }

  absl::Status ReadClass() {
    const size_t begin = at_;
    // "]" that comes first stands for itself in PCRE2 only.
    if (StartsWithAny(rest(), {"[]", "[^]"})) return Unsupported("[]");
    const bool negated = StartsWithAny(rest(), {"[^"});
    at_ += negated ? 2 : 1;
    const size_t first = at_;
    CodePointSet set;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      SKEIN_RETURN_IF_ERROR(ReadClassMember(first, set));
    }
    if (at_ == pattern_.size()) return Broken("a class has no end", begin);
    ++at_;
    if (ignores_case()) {
      if (negated || !IsAscii(set)) {
        return Unsupported("(?i:" + std::string(pattern_.substr(begin, at_ - begin)));
      }
      set = FoldCase(std::move(set));
    }
    Match(negated ? set.Complement() : std::move(set));
    return absl::OkStatus();
  }

  // One, or a range; `first` is where the members begin.
  absl::Status ReadClassMember(size_t first, CodePointSet& set) {
    const size_t begin = at_;
    // Oniguruma nests classes and intersects them; a "-" between others it reads with a warning.
    if (pattern_[at_] == '[') return Unsupported("[ inside [ ]");
    if (StartsWithAny(rest(), {"&&"})) return Unsupported("&&");
    if (pattern_[at_] == '-' && at_ != first && !StartsWithAny(rest(), {"-]"})) {
      return Unsupported("- inside [ ]");
    }
    SKEIN_ASSIGN_OR_RETURN(const Member low, ReadMember());
    if (const auto* several = std::get_if<CodePointSet>(&low)) {
      set.Add(*several);
      return absl::OkStatus();
    }
    const auto from = std::get<uint32_t>(low);
    auto to = from;
    if (StartsWithAny(rest(), {"-"}) && !StartsWithAny(rest(), {"-]"}) && rest().size() > 1) {
      ++at_;
      if (pattern_[at_] == '[') return Unsupported("[ inside [ ]");
      SKEIN_ASSIGN_OR_RETURN(const Member high, ReadMember());
      if (!std::holds_alternative<uint32_t>(high)) return Unsupported("- inside [ ]");
      to = std::get<uint32_t>(high);
    }
    if (to < from) return Broken("a range ends before it begins", begin);
    set.Add(CodePointSet(from, to));
    return absl::OkStatus();
  }

  // A character, or an escape for one or for several; moves behind it.
  absl::StatusOr<Member> ReadMember() {
    if (pattern_[at_] != '\\') return ReadCodePoint(pattern_, at_);
    if (rest().size() < 2) return Unsupported("\\");
    const char c = pattern_[at_ + 1];
    if (!absl::ascii_isalnum(c)) {
      ++at_;
      return ReadCodePoint(pattern_, at_);
    }
    constexpr std::string_view kNames = "nrtf";
    constexpr std::string_view kControls = "\n\r\t\f";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      at_ += 2;
      return static_cast<uint32_t>(kControls[i]);
    }
    if (c == 'p' || c == 'P') return ReadProperty();
    const char lower = absl::ascii_tolower(c);
    if (lower != 's' && lower != 'd') return Unsupported(rest().substr(0, 2));
    at_ += 2;
    CodePointSet set = lower == 's' ? WhiteSpace() : *GeneralCategory("Nd");
    return c == lower ? std::move(set) : set.Complement();
  }

  absl::StatusOr<Member> ReadProperty() {
    const size_t begin = at_;
    // General categories only: scripts and others have names of more letters.
    const size_t close = rest().find('}');
    if (StartsWithAny(rest().substr(2), {"{"}) && close != std::string_view::npos) {
      const std::string_view name = rest().substr(3, close - 3);
      const bool may_be =
          (name.size() == 1 || name.size() == 2) &&
          std::string_view("CLMNPSZ").find(name[0]) != std::string_view::npos &&
          std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalpha(c); });
      if (may_be) {
        const bool negated = rest()[1] == 'P';
        std::optional<CodePointSet> set = GeneralCategory(name);
        if (!set.has_value()) return Broken("Unicode has no such category", begin);
        at_ += close + 1;
        return negated ? set->Complement() : *std::move(set);
      }
    }
    return Unsupported(rest().substr(0, 2));
  }

  absl::StatusOr<BytePattern> Assemble() const {
    std::vector<CodePointSet> sets;
    for (const auto& piece : pieces_) {
      if (const auto* set = std::get_if<CodePointSet>(&piece)) sets.push_back(*set);
    }
    absl::StatusOr<SymbolTable> symbols = SymbolTable::Create(sets);
    if (!symbols.ok()) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(symbols.status().message()), ": ", std::string(pattern_)));
    }
    BytePattern result = {"", *std::move(symbols)};
    for (const auto& piece : pieces_) {
      const auto* set = std::get_if<CodePointSet>(&piece);
      result.pattern +=
          set == nullptr ? std::get<std::string>(piece) : ClassOf(result.symbols.Symbols(*set));
    }
    return result;
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  std::vector<bool> ignore_case_;  // of the groups that are open
  char letter_before_ = '\0';      // in (?i: ), right before
  std::vector<std::variant<std::string, CodePointSet>> pieces_;
};

}  // namespace

absl::StatusOr<BytePattern> TranslateOniguruma(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace skein::model
