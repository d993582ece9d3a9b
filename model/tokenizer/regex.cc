#include "model/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

// PCRE2 counts backtracking steps. Llama-3's pattern takes two for each space of a long run; 10
// million, PCRE2's default, are too few for 10 MiB of spaces.
constexpr uint64_t kMatchStepsPerByte = 16;
constexpr uint64_t kMatchStepsAtLeast = 1'000'000;
// For patterns that remember a place for each byte; those in use need none.
constexpr uint32_t kMatchHeapKiB = 256 << 10;

std::string Pcre2Error(int code) {
  std::array<PCRE2_UCHAR, 256> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

absl::Status Unsupported(std::string_view what, std::string_view pattern) {
  return absl::UnimplementedError(
      absl::StrCat("\"", std::string(what),
                   "\" in a regular expression is not supported: ", std::string(pattern)));
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
  });
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Bytes of the escape that `rest` begins with when both engines read it alike; 0 when they do not.
size_t CommonEscape(std::string_view rest) {
  if (rest.size() < 2) return 0;
  const char c = rest[1];
  if (!IsAlphanumeric(c)) return 2;
  if (StartsWithAny(rest.substr(1), {"r", "n", "t", "f", "d", "D"})) return 2;
  if (c != 'p' && c != 'P') return 0;
  // General categories only: \p{L}, \p{Lu}. PCRE2 reads scripts as script extensions.
  const size_t close = rest.find('}');
  if (rest.substr(2, 1) != "{" || close == std::string_view::npos) return 0;
  const std::string_view category = rest.substr(3, close - 3);
  const bool known = (category.size() == 1 || category.size() == 2) &&
                     std::string_view("CLMNPSZ").find(category[0]) != std::string_view::npos &&
                     category.find('&') == std::string_view::npos;
  return known ? close + 1 : 0;
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

size_t CharacterEnd(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && (text[at] & 0xC0) == 0x80);
  return at;
}

// Finds matches of one expression, one after the other.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        match_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {}

  bool ok() const { return match_ != nullptr && context_ != nullptr; }

  void StartText(std::string_view text) {
    text_ = text;
    const uint64_t steps = kMatchStepsAtLeast + kMatchStepsPerByte * text.size();
    pcre2_set_match_limit(context_.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kMatchHeapKiB);
  }

  // The first match at `from` or later: a positive number, or PCRE2's error.
  int Find(size_t from) {
    int result = Match(from, 0);
    // Compiled code has 32 KiB of stack; interpreting takes memory from the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = Match(from, PCRE2_NO_JIT);
    return result;
  }

  size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

 private:
  int Match(size_t from, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                       PCRE2_NO_UTF_CHECK | options, match_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeMatch> context_;
  std::string_view text_;
};

}  // namespace

absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern) {
  std::string translated;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size();) {
    const std::string_view rest = pattern.substr(i);
    size_t size = 1;
    std::string_view becomes;
    if (StartsWithAny(rest, {"\\s", "\\S"})) {
      size = 2;
      becomes = rest[1] == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else if (rest[0] == '\\') {
      size = CommonEscape(rest);
      if (size == 0) return Unsupported(rest.substr(0, 2), pattern);
    } else if (in_class) {
      if (rest[0] == ']') in_class = false;
      // Oniguruma nests classes and intersects them.
      if (rest[0] == '[') return Unsupported("[ inside [ ]", pattern);
      if (StartsWithAny(rest, {"&&"})) return Unsupported("&&", pattern);
    } else if (rest[0] == '[') {
      in_class = true;
      // "]" that comes first stands for itself in PCRE2 only.
      if (StartsWithAny(rest, {"[]", "[^]"})) return Unsupported("[]", pattern);
      if (StartsWithAny(rest, {"[^"})) size = 2;
    } else if (StartsWithAny(rest, {"(?"})) {
      if (!StartsWithAny(rest, {"(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>"})) {
        return Unsupported(rest.substr(0, 3), pattern);
      }
    } else if (StartsWithAny(rest, {"^", "$", "(*"}) ||
               (rest[0] == '}' && rest.substr(1, 1) == "+")) {
      // Line by line in Ruby; a verb in PCRE2 only; possessive in PCRE2, repeated in Ruby.
      return Unsupported(rest.substr(0, rest[0] == '^' || rest[0] == '$' ? 1 : 2), pattern);
    }
    translated += becomes.empty() ? rest.substr(0, size) : becomes;
    i += size;
  }
  return translated;
}

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern, bool literal) {
  Regex regex;
  regex.pattern_ = pattern;
  std::string translated(pattern);
  if (!literal) {
    SKEIN_ASSIGN_OR_RETURN(translated, TranslateOniguruma(pattern));
  }
  const uint32_t options = literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP;
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(), options, &error, &offset, nullptr));
  if (regex.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression does not compile: ", Pcre2Error(error), " at offset ",
                     offset, " of ", translated));
  }
  // Where code must not be made at run time this fails, and matching interprets: same result.
  pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

absl::StatusOr<std::vector<std::string_view>> Regex::Cut(const std::vector<std::string_view>& texts,
                                                         bool keep_matches, bool keep_gaps) const {
  Matcher matcher(code_.get());
  if (!matcher.ok()) return absl::ResourceExhaustedError("no memory for a regular expression");
  std::vector<std::string_view> pieces;
  for (const std::string_view text : texts) {
    const auto add = [&](size_t begin, size_t end, bool keep) {
      if (keep && end > begin) pieces.push_back(text.substr(begin, end - begin));
    };
    matcher.StartText(text);
    size_t done = 0;  // text before it was cut
    size_t from = 0;  // the next match begins here or later
    while (from < text.size()) {
      const int result = matcher.Find(from);
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the tokenizer's regular expression gave up at byte ", from, " of ",
                         text.size(), " (", Pcre2Error(result), "): ", pattern_));
      }
      add(done, matcher.begin(), keep_gaps);
      add(matcher.begin(), matcher.end(), keep_matches);
      done = matcher.end();
      from = matcher.end() > matcher.begin() ? done : CharacterEnd(text, done);
    }
    add(done, text.size(), keep_gaps);
  }
  return pieces;
}

}  // namespace skein::model
