// Makes the values of one rendering, and holds it to its limits.
//
// One thread uses it. All errors are ResourceExhausted, and name the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/template/limits.h"
#include "model/template/value.h"

namespace skein::model {

class Runtime {
 public:
  Runtime(const RenderLimits& limits, absl::Time now) : limits_(limits), now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  absl::Time now() const { return now_; }
  const RenderLimits& limits() const { return limits_; }

  absl::Status Step(int64_t steps = 1);
  // Counts an operation that goes through so many bytes, or values.
  absl::Status Work(size_t bytes) { return Step(static_cast<int64_t>(bytes / 128)); }
  absl::Status WorkOn(size_t values) { return Step(static_cast<int64_t>(values / 8)); }
  // Whether something of that size could be made; asked before it is.
  absl::Status Reserve(size_t bytes) const;
  Charge Use(size_t bytes) { return Charge(&used_, bytes); }

  // One level deeper until the guard goes. `ok` is false beyond the limit: DepthError() says so.
  class DepthGuard {
   public:
    explicit DepthGuard(Runtime& runtime)
        : runtime_(runtime), ok(++runtime.depth_ <= runtime.limits_.depth) {}
    ~DepthGuard() { --runtime_.depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

   private:
    Runtime& runtime_;

   public:
    const bool ok;
  };
  absl::Status DepthError() const;

  absl::StatusOr<Value> MakeString(Text text, bool markup = false);
  absl::StatusOr<Value> MakeString(std::string_view bytes) {
    return MakeString(Text(std::string(bytes)));
  }
  absl::StatusOr<Value> MakeList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // A tuple whose items have the names `grouper` and `list`.
  absl::StatusOr<Value> MakeGroup(Value key, Value list);
  absl::StatusOr<Value> MakeStrings(std::vector<Text> texts, bool markup = false);
  absl::StatusOr<Value> MakeRange(int64_t start, int64_t stop, int64_t step);
  // Later entries win. InvalidArgument: a key that cannot be hashed.
  absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries);
  absl::StatusOr<Value> MakeIterator(std::vector<Value> items);
  // Namespaces live until the rendering ends, since they may refer to themselves.
  absl::StatusOr<Value> MakeNamespace();
  // `self`: what a method belongs to.
  absl::StatusOr<Value> MakeCallable(
      std::string name, std::function<absl::StatusOr<Value>(Runtime&, const Arguments&)> call,
      const Value& self = None());
  absl::StatusOr<LoopPtr> MakeLoop(std::vector<Value> items);

 private:
  absl::StatusOr<int> HeightAbove(const std::vector<Value>& items) const;

  const RenderLimits limits_;
  const absl::Time now_;
  int64_t steps_ = 0;
  int64_t used_ = 0;
  int depth_ = 0;
  std::vector<NamespacePtr> namespaces_;
};

Value MakeUndefined(std::string why);

// The items that a for loop goes through. InvalidArgument: a value that has none.
absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);

}  // namespace skein::model
