#include "model/template/builtins.h"

#include <array>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/errors.h"
#include "model/template/printing.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

Result Range(Runtime& runtime, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("range", arguments, {"start", "stop", "step"}, 1));
  if (!arguments.named.empty()) return Invalid("range takes no named arguments");
  SKEIN_ASSIGN_OR_RETURN(const int64_t first, IntegerArgument(bound[0], 0));
  if (bound[1] == nullptr) return runtime.MakeRange(0, first, 1);
  SKEIN_ASSIGN_OR_RETURN(const int64_t stop, IntegerArgument(bound[1], 0));
  SKEIN_ASSIGN_OR_RETURN(const int64_t step, IntegerArgument(bound[2], 1));
  return runtime.MakeRange(first, stop, step);
}

// dict(...): of a dict, or of pairs, and of names.
absl::StatusOr<std::vector<std::pair<Value, Value>>> Entries(Runtime& runtime,
                                                             const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) return Invalid("dict takes one value at most");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* dict = std::get_if<DictPtr>(&source)) {
      entries = (*dict)->entries;
    } else {
      SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, source));
      for (const Value& item : items) {
        SKEIN_ASSIGN_OR_RETURN(std::vector<Value> pair, Iterate(runtime, item));
        if (pair.size() != 2) return Invalid("dict needs pairs");
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  entries.insert(entries.end(), arguments.named.begin(), arguments.named.end());
  return entries;
}

Result MakeDictBy(Runtime& runtime, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(auto entries, Entries(runtime, arguments));
  return runtime.MakeDict(std::move(entries));
}

Result MakeNamespaceBy(Runtime& runtime, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(auto entries, Entries(runtime, arguments));
  SKEIN_ASSIGN_OR_RETURN(Value value, runtime.MakeNamespace());
  Namespace& space = *std::get<NamespacePtr>(value);
  for (auto& [name, attribute] : entries) {
    if (IsString(name) && TextOf(name).bytes().starts_with("_")) {
      return Invalid("a namespace has no '", TextOf(name).bytes(), "'");
    }
    if (!space.attributes.Set(name, std::move(attribute))) {
      return Invalid("a ", TypeName(name), " cannot be a key");
    }
  }
  return value;
}

Result RaiseException(Runtime& runtime, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("raise_exception", arguments, {"message"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text message, Printed(runtime, *bound[0]));
  return AsRaised(Invalid(message.bytes()));
}

// As Python's datetime does for a time without a zone: %z and %Z are nothing, %f is microseconds.
std::string WithoutZones(const std::string& format, absl::Time now) {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const char kind = format[++at];
    if (kind == 'f') {
      out += absl::FormatTime("%E6f", now, absl::LocalTimeZone());
    } else if (kind != 'z' && kind != 'Z') {
      out.append({'%', kind});
    }
  }
  return out;
}

Result StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("strftime_now", arguments, {"format"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* format, TextArgument(bound[0]));
  // Longer ones are no dates: a field may ask for any width.
  constexpr size_t kMaxDate = 1024;
  if (format->size() > kMaxDate) return Invalid("strftime_now: a format too long");
  const std::string plain = WithoutZones(format->bytes(), runtime.now());
  const std::tm time = absl::ToTM(runtime.now(), absl::LocalTimeZone());
  std::array<char, kMaxDate * 4> buffer;
  const size_t size = std::strftime(buffer.data(), buffer.size(), plain.c_str(), &time);
  if (size == 0 && !plain.empty()) return Invalid("strftime_now: a date too long, or none");
  return runtime.MakeString(Text(std::string(buffer.data(), size), format->AnyOrigin()));
}

}  // namespace

Result MakeBuiltin(Runtime& runtime, const std::string& name) {
  if (name == "range") return runtime.MakeCallable(name, Range);
  if (name == "dict") return runtime.MakeCallable(name, MakeDictBy);
  if (name == "namespace") return runtime.MakeCallable(name, MakeNamespaceBy);
  if (name == "raise_exception") return runtime.MakeCallable(name, RaiseException);
  if (name == "strftime_now") return runtime.MakeCallable(name, StrftimeNow);
  for (const char* const unsupported : {"lipsum", "cycler", "joiner"}) {
    if (name == unsupported) return MakeUndefined("'" + name + "' is not supported");
  }
  return MakeUndefined("'" + name + "' is undefined");
}

Result CallValue(Runtime& runtime, const Value& callee, const Arguments& arguments) {
  if (const auto* callable = std::get_if<CallablePtr>(&callee)) {
    const CallablePtr held = *callable;  // the call may assign to the variable that holds it
    return held->call(runtime, arguments);
  }
  if (const auto* loop = std::get_if<LoopPtr>(&callee)) {
    if ((*loop)->recurse == nullptr) return Invalid("the loop is not recursive");
    SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("loop", arguments, {"iterable"}, 1));
    const auto recurse = (*loop)->recurse;
    return recurse(*bound[0]);
  }
  if (IsUndefined(callee)) return Invalid(*std::get<Undefined>(callee).why);
  return Invalid("a ", TypeName(callee), " cannot be called");
}

}  // namespace skein::model
