#include "kernels/cuda/compile.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_util.h"
#include "kernels/cuda/add_bias.h"
#include "kernels/cuda/batch_invariant_linear.h"
#include "kernels/cuda/check_kernels.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/nvtx_range.h"
#include "kernels/cuda/op_name.h"
#include "kernels/cuda/paged_batch.h"
#include "kernels/cuda/peer_sum_norm.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/product_kind.h"
#include "kernels/cuda/qk_norm.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append_kv.h"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/swiglu.h"
#include "kernels/cuda/wide_tile_linear.h"

namespace skein::kernels::cuda {
namespace {

class Compiled final : public CompiledProgram {
 public:
  Compiled(const Program& program, const Bindings& bindings, Workspace workspace)
      : program_(program),
        bindings_(bindings),
        weights_(static_cast<const CudaWeights*>(bindings.weights)),
        kv_(static_cast<const CudaKv*>(bindings.kv)),
        w_(std::move(workspace)),
        dtype_(DTypeOfMatrices(program)) {}

  absl::Status Compile() {
    SKEIN_RETURN_IF_ERROR(CheckKernels(program_, kv_ == nullptr ? nullptr : &kv_->spec()));
    if (program_.deterministic) SKEIN_RETURN_IF_ERROR(NeedHopper("--deterministic"));
    for (size_t i = 0; i < program_.ops.size(); i += done_) {
      at_ = i;
      done_ = 1;
      std::visit([&](const auto& op) { Add(op); }, program_.ops[i]);
      marks_.resize(steps_.size(), MarkOf(i));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(const BatchShape& shape) const override {
    if (shape.marked) return EnqueueMarked(shape);
    for (const Step& step : steps_) SKEIN_RETURN_IF_ERROR(step(shape));
    return absl::OkStatus();
  }

  absl::Status Tune(const BatchShape& shape) const override {
    // Of unlike shapes.
    std::map<std::tuple<int64_t, int64_t, DType>, std::vector<BlasLinear>> products;
    for (const Op& op : program_.ops) {
      const auto* product = std::get_if<MatMulOp>(&op);
      if (product == nullptr) continue;
      const BlasLinear linear = ProductOf(*product, shape);
      const WeightSpec& spec = program_.weights[product->weight].spec;
      if (KindOf(linear.rows, spec) != ProductKind::kBlas) continue;
      products[{linear.n, linear.k, linear.out_dtype}].push_back(linear);
    }
    for (const auto& [kind, alike] : products) {
      SKEIN_RETURN_IF_ERROR(w_.blas->Tune(alike, w_.stream));
    }
    return absl::OkStatus();
  }

  bool CanBeCaptured() const override {
    return sums() == 0 || bindings_.collectives->RunOnDevice();
  }
  int64_t sums() const override {
    return std::count_if(program_.ops.begin(), program_.ops.end(),
                         [](const Op& op) { return std::holds_alternative<AllReduceOp>(op); });
  }

 private:
  using Step = std::function<absl::Status(const BatchShape&)>;
  // What a step is in profiles.
  struct Mark {
    std::string layer;  // "layer 3", or ""
    std::string operation;
  };

  absl::Status EnqueueMarked(const BatchShape& shape) const {
    std::optional<NvtxRange> layer;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (i == 0 || marks_[i].layer != marks_[i - 1].layer) {
        layer.reset();
        layer.emplace(marks_[i].layer.empty() ? nullptr : marks_[i].layer.c_str());
      }
      const NvtxRange operation(marks_[i].operation.c_str());
      SKEIN_RETURN_IF_ERROR(steps_[i](shape));
    }
    return absl::OkStatus();
  }

  Mark MarkOf(size_t op) const {
    const int32_t layer = op < program_.op_layers.size() ? program_.op_layers[op] : -1;
    return {layer < 0 ? "" : absl::StrCat("layer ", layer), NameOfOp(program_, program_.ops[op])};
  }
  // The operation so many places behind the one that is added, if it is such a one.
  template <typename Next>
  const Next* Following(size_t places) const {
    return OpAt<Next>(program_, at_ + places);
  }
  // Whether the operation that is added has such a one so many places before it.
  template <typename Before>
  bool Follows(size_t places) const {
    return at_ >= places && std::holds_alternative<Before>(program_.ops[at_ - places]);
  }
  const BufferSpec& At(BufferId id) const { return program_.buffers[id]; }
  DType DTypeOf(BufferId id) const { return At(id).dtype; }
  int64_t Cols(BufferId id) const { return At(id).cols; }
  int32_t RowsOf(BufferId id, const BatchShape& shape) const {
    return At(id).rows == BufferSpec::Rows::kTokens ? shape.rows : shape.outputs;
  }

  void Add(const EmbedOp& op) {
    steps_.push_back([=, this](const BatchShape& shape) {
      return cuda::Enqueue(GatherRows{.in_dtype = dtype_,
                                      .out_dtype = DTypeOf(op.out),
                                      .rows = shape.rows,
                                      .cols = Cols(op.out),
                                      .ids = w_.At<int32_t>(w_.places.token_ids),
                                      .first_id = op.first_id,
                                      .count = op.count,
                                      .in = weights_->data(op.table),
                                      .out = w_.Buffer(op.out, shape.batch),
                                      .in_stride = Cols(op.out),
                                      .out_stride = Cols(op.out)},
                           w_.stream);
    });
  }

  void Add(const RmsNormOp& op) { AddNorm(op.in, /*delta=*/-1, op.gain, op.eps, op.out); }
  void Add(const AddRmsNormOp& op) { AddNorm(op.residual, op.delta, op.gain, op.eps, op.out); }

  void AddNorm(BufferId residual, BufferId delta, WeightId gain, float eps, BufferId out) {
    steps_.push_back([=, this](const BatchShape& shape) {
      return cuda::Enqueue(NormOf({residual, delta, gain, eps, out}, shape), w_.stream);
    });
  }
  // delta < 0: there is none.
  RmsNorm NormOf(const AddRmsNormOp& op, const BatchShape& shape) const {
    const int64_t cols = Cols(op.residual);
    return {.dtype = dtype_,
            .residual_dtype = DTypeOf(op.residual),
            .delta_dtype = DTypeOf(std::max(op.delta, 0)),
            .rows = RowsOf(op.residual, shape),
            .cols = cols,
            .residual = w_.Buffer(op.residual, shape.batch),
            .delta = op.delta < 0 ? nullptr : w_.Buffer(op.delta, shape.batch),
            .gain = weights_->floats(op.gain),
            .eps = op.eps,
            .out = w_.Buffer(op.out, shape.batch),
            .residual_stride = cols,
            .delta_stride = cols,
            .out_stride = cols};
  }

  void Add(const AddOp& op) {
    steps_.push_back([=, this](const BatchShape& shape) {
      const int64_t rows = RowsOf(op.out, shape);
      const int64_t cols = Cols(op.out);
      void* const out = w_.Buffer(op.out, shape.batch);
      if (op.out != op.residual && rows > 0) {
        SKEIN_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(
            out, w_.Buffer(op.residual, shape.batch), DTypeBytes(DTypeOf(op.out), rows * cols),
            cudaMemcpyDeviceToDevice, CudaStream(w_.stream)));
      }
      return cuda::Enqueue(RmsNorm{.dtype = dtype_,
                                   .residual_dtype = DTypeOf(op.out),
                                   .delta_dtype = DTypeOf(op.delta),
                                   .rows = rows,
                                   .cols = cols,
                                   .residual = out,
                                   .delta = w_.Buffer(op.delta, shape.batch),
                                   .residual_stride = cols,
                                   .delta_stride = cols,
                                   .out_stride = cols},
                           w_.stream);
    });
  }

  ProductKind KindOf(int64_t rows, const WeightSpec& weight) const {
    return KindOfProduct(rows, weight, program_.deterministic, w_.multiprocessors);
  }

  BlasLinear ProductOf(const MatMulOp& op, const BatchShape& shape) const {
    const WeightSpec& spec = program_.weights[op.weight].spec;
    return {.dtype = dtype_,
            .out_dtype = DTypeOf(op.out),
            .rows = RowsOf(op.in, shape),
            .n = spec.rows,
            .k = spec.cols,
            .in = w_.Buffer(op.in, shape.batch),
            .weight = weights_->data(op.weight),
            .out = w_.Buffer(op.out, shape.batch),
            .in_stride = spec.cols,
            .weight_stride = spec.cols,
            .out_stride = spec.rows};
  }

  // out[r] = in[r] * weight^T, by the kernel for so many rows; with SwiGLU on the way where it
  // follows.
  absl::Status Multiply(const MatMulOp& op, const GluOp* swiglu, const BatchShape& shape) const {
    const WeightSpec& spec = program_.weights[op.weight].spec;
    const int64_t rows = RowsOf(op.in, shape);
    const BufferId to = swiglu == nullptr ? op.out : swiglu->out;
    const auto linear = [&]<typename Linear>(Linear what) {
      what.dtype = dtype_;
      what.out_dtype = DTypeOf(to);
      what.swiglu = swiglu != nullptr;
      what.rows = rows;
      what.n = spec.rows;
      what.k = spec.cols;
      what.in = w_.Buffer(op.in, shape.batch);
      what.weight = weights_->data(op.weight);
      what.out = w_.Buffer(to, shape.batch);
      what.in_stride = spec.cols;
      what.weight_stride = spec.cols;
      what.out_stride = Cols(to);
      return what;
    };
    if (rows == 0) return absl::OkStatus();
    switch (KindOf(rows, spec)) {
      case ProductKind::kFewRows:
        return cuda::Enqueue(linear(FewRowsLinear{.multiprocessors = w_.multiprocessors}),
                             w_.stream);
      case ProductKind::kStreamK:
        return cuda::Enqueue(
            linear(StreamKLinear{.multiprocessors = w_.multiprocessors,
                                 .workspace = w_.At<void>(w_.places.stream_k_workspace)}),
            w_.stream);
      case ProductKind::kWideTile:
        return cuda::Enqueue(
            linear(WideTileLinear{.tile = WideTileOf(spec.rows, spec.cols, w_.multiprocessors),
                                  .multiprocessors = w_.multiprocessors}),
            w_.stream);
      case ProductKind::kBatchInvariant:
        return cuda::Enqueue(linear(BatchInvariantLinear{.blocks = spec.inner_blocks}), w_.stream);
      case ProductKind::kBlas:
        break;
    }
    SKEIN_RETURN_IF_ERROR(w_.blas->Enqueue(ProductOf(op, shape), w_.stream));
    return swiglu == nullptr ? absl::OkStatus()
                             : Activate(*swiglu, GateUpLayout::kInterleaved, shape);
  }

  void Add(const MatMulOp& op) {
    const auto* bias = Following<AddBiasOp>(1);
    const auto* swiglu = Following<GluOp>(bias == nullptr ? 1 : 2);
    if (!weights_->interleaved(op.weight) || swiglu == nullptr) {
      steps_.push_back([=, this](const BatchShape& shape) { return Multiply(op, nullptr, shape); });
      return;
    }
    if (bias == nullptr) {
      done_ = 2;
      steps_.push_back([=, this, swiglu = *swiglu](const BatchShape& shape) {
        return Multiply(op, &swiglu, shape);
      });
      return;
    }
    done_ = 3;
    steps_.push_back([=, this, bias = *bias, swiglu = *swiglu](const BatchShape& shape) {
      SKEIN_RETURN_IF_ERROR(Multiply(op, nullptr, shape));
      SKEIN_RETURN_IF_ERROR(Bias(bias, GateUpLayout::kInterleaved, shape));
      return Activate(swiglu, GateUpLayout::kInterleaved, shape);
    });
  }

  absl::Status Bias(const AddBiasOp& op, GateUpLayout layout, const BatchShape& shape) const {
    return cuda::Enqueue(AddBias{.dtype = DTypeOf(op.buffer),
                                 .rows = RowsOf(op.buffer, shape),
                                 .cols = Cols(op.buffer),
                                 .x = w_.Buffer(op.buffer, shape.batch),
                                 .bias = weights_->floats(op.bias),
                                 .stride = Cols(op.buffer),
                                 .layout = layout},
                         w_.stream);
  }
  void Add(const AddBiasOp& op) {
    steps_.push_back(
        [=, this](const BatchShape& shape) { return Bias(op, GateUpLayout::kHalves, shape); });
  }

  void Add(const QkNormOp& op) {
    steps_.push_back([=, this](const BatchShape& shape) {
      return cuda::Enqueue(QkNorm{.dtype = dtype_,
                                  .rows = shape.rows,
                                  .heads = op.heads,
                                  .kv_heads = op.kv_heads,
                                  .head_dim = op.head_dim,
                                  .qkv = w_.Buffer(op.qkv, shape.batch),
                                  .qkv_stride = Cols(op.qkv),
                                  .q_gain = weights_->floats(op.q_gain),
                                  .k_gain = weights_->floats(op.k_gain),
                                  .eps = op.eps},
                           w_.stream);
    });
  }

  absl::Status Activate(const GluOp& op, GateUpLayout layout, const BatchShape& shape) const {
    return cuda::Enqueue(SwiGlu{.dtype = dtype_,
                                .layout = layout,
                                .rows = RowsOf(op.out, shape),
                                .cols = Cols(op.out),
                                .gate_up = w_.Buffer(op.gate_up, shape.batch),
                                .out = w_.Buffer(op.out, shape.batch),
                                .gate_up_stride = 2 * Cols(op.out),
                                .out_stride = Cols(op.out)},
                         w_.stream);
  }
  void Add(const GluOp& op) {
    steps_.push_back(
        [=, this](const BatchShape& shape) { return Activate(op, GateUpLayout::kHalves, shape); });
  }

  // CheckDeviceKernels has refused them.
  void Add(const ScaleOp&) {}
  void Add(const SoftCapOp&) {}
  void Add(const RouteOp&) {}
  void Add(const ExpertsOp&) {}
  void Add(const CombineExpertsOp&) {}
  void Add(const AddGatedOp&) {}

  void Add(const RopeAppendKvOp& op) {
    steps_.push_back([=, this](const BatchShape& shape) {
      return cuda::Enqueue(
          RopeAppendKv{.dtype = dtype_,
                       .rows = shape.rows,
                       .heads = op.heads,
                       .qkv = w_.Buffer(op.qkv, shape.batch),
                       .qkv_stride = Cols(op.qkv),
                       .kv = kv_->layer(op.layer),
                       .inverse_frequencies = weights_->floats(op.inverse_frequencies),
                       .positions = w_.At<int32_t>(w_.places.positions),
                       .kv_slots = w_.At<int64_t>(w_.places.kv_slots)},
          w_.stream);
    });
  }

  PagedBatch Paged(const BatchShape& shape) const {
    return {.sequences = shape.sequences,
            .row_begin = w_.At<int32_t>(w_.places.row_begin),
            .slots = w_.At<int32_t>(w_.places.slots),
            .lengths = w_.At<int32_t>(w_.places.lengths),
            .page_tables = w_.At<int32_t>(w_.places.page_tables),
            .page_table_stride = w_.page_table_stride};
  }

  void Add(const AttentionOp& op) {
    // Layers of equal windows have one plan. It goes before the first operation, so that attention
    // need not wait for it.
    const int64_t place = w_.places.decode_plans.at(op.window);
    if (!program_.deterministic && planned_.insert(op.window).second) {
      marks_.insert(marks_.begin(), Mark{"", "plan of attention"});
      steps_.insert(steps_.begin(), [=, this](const BatchShape& shape) {
        if (!shape.decodes) return absl::OkStatus();
        return cuda::Enqueue(PlanDecode{.batch = Paged(shape),
                                        .kv_heads = op.kv_heads,
                                        .window = op.window,
                                        .multiprocessors = w_.multiprocessors,
                                        .plan = w_.At<void>(place)},
                             w_.stream);
      });
    }
    // It writes the newest positions. When it begins, what stands before the product has ended.
    const bool early = Follows<RopeAppendKvOp>(1) && Follows<MatMulOp>(2);
    steps_.push_back([=, this](const BatchShape& shape) {
      void* const plan = w_.At<void>(place);
      const PagedBatch batch = Paged(shape);
      const void* const q = w_.Buffer(op.qkv, shape.batch);
      void* const out = w_.Buffer(op.out, shape.batch);
      // It cuts a sequence where the batch's work is cut.
      if (shape.decodes && !program_.deterministic) {
        SKEIN_RETURN_IF_ERROR(
            cuda::Enqueue(DecodeAttention{.dtype = dtype_,
                                          .batch = batch,
                                          .heads = op.heads,
                                          .kv = kv_->layer(op.layer),
                                          .scale = op.scale,
                                          .window = op.window,
                                          .multiprocessors = w_.multiprocessors,
                                          .plan = plan,
                                          .early = early,
                                          .partials = w_.At<void>(w_.places.decode_partials),
                                          .q = q,
                                          .out = out,
                                          .q_stride = Cols(op.qkv),
                                          .out_stride = Cols(op.out)},
                          w_.stream));
      }
      if (!shape.prefills && !program_.deterministic) return absl::OkStatus();
      return cuda::Enqueue(
          PrefillAttention{.dtype = dtype_,
                           .batch = batch,
                           .fewest_rows = program_.deterministic ? 1 : 2,
                           .rows = shape.rows,
                           .heads = op.heads,
                           .kv = kv_->layer(op.layer),
                           .scale = op.scale,
                           .window = op.window,
                           .q = q,
                           .out = out,
                           .q_stride = Cols(op.qkv),
                           .out_stride = Cols(op.out),
                           .form = HopperForms() ? PrefillForm::kWarpgroups : PrefillForm::kWarps},
          w_.stream);
    });
  }

  void Add(const GatherRowsOp& op) {
    steps_.push_back([=, this](const BatchShape& shape) {
      return cuda::Enqueue(GatherRows{.in_dtype = DTypeOf(op.in),
                                      .out_dtype = DTypeOf(op.out),
                                      .rows = shape.outputs,
                                      .cols = Cols(op.in),
                                      .ids = w_.At<int32_t>(w_.places.output_rows),
                                      .count = shape.rows,
                                      .in = w_.Buffer(op.in, shape.batch),
                                      .out = w_.Buffer(op.out, shape.batch),
                                      .in_stride = Cols(op.in),
                                      .out_stride = Cols(op.in)},
                           w_.stream);
    });
  }

  void Add(const AllReduceOp& op) {
    const auto* norm = Following<AddRmsNormOp>(1);
    if (norm != nullptr && norm->delta == op.buffer) {
      done_ = 2;
      steps_.push_back(
          [=, this, norm = *norm](const BatchShape& shape) { return SumAndNorm(op, norm, shape); });
    } else {
      steps_.push_back([=, this](const BatchShape& shape) { return Sum(op, shape); });
    }
  }
  View ViewOf(BufferId id, const BatchShape& shape) const {
    return {w_.Buffer(id, shape.batch), DTypeOf(id), RowsOf(id, shape), Cols(id)};
  }
  absl::Status Sum(const AllReduceOp& op, const BatchShape& shape) const {
    const View view = ViewOf(op.buffer, shape);
    if (view.elements() == 0) return absl::OkStatus();  // on every rank
    Collectives& shards = *bindings_.collectives;
    return shape.captured ? shards.CaptureAllReduce(view, w_.stream)
                          : shards.AllReduce(view, w_.stream);
  }
  // In one kernel where the sum goes over peer memory.
  absl::Status SumAndNorm(const AllReduceOp& op, const AddRmsNormOp& norm,
                          const BatchShape& shape) const {
    const View view = ViewOf(op.buffer, shape);
    Collectives& shards = *bindings_.collectives;
    PeerSumNorm both = {.norm = NormOf(norm, shape), .delta = view.data};
    if (const PeerMemory* const memory = shards.PeersOf(view)) both.memory = *memory;
    if (view.elements() > 0 && HasKernel(both)) {
      const auto give = [&] { return cuda::Enqueue(both, w_.stream); };
      return shape.captured ? give() : shards.AllReduceBy(view, w_.stream, give);
    }
    SKEIN_RETURN_IF_ERROR(Sum(op, shape));
    return cuda::Enqueue(both.norm, w_.stream);
  }

  const Program& program_;
  const Bindings bindings_;
  const CudaWeights* const weights_;
  const CudaKv* const kv_;
  const Workspace w_;
  const DType dtype_;          // of what has 16 bits; its weights were held against it
  size_t at_ = 0;              // the operation that is added
  size_t done_ = 1;            // from it on, together
  std::set<int32_t> planned_;  // windows
  std::vector<Step> steps_;
  std::vector<Mark> marks_;  // [steps]
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledProgram>> CompileProgram(const Program& program,
                                                                const Bindings& bindings,
                                                                Workspace workspace) {
  auto compiled = std::make_unique<Compiled>(program, bindings, std::move(workspace));
  SKEIN_RETURN_IF_ERROR(compiled->Compile());
  return compiled;
}

}  // namespace skein::kernels::cuda
