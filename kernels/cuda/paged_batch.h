// What attention reads of a batch, as it lies on the device.
#pragma once

#include <cstdint>

namespace skein::kernels::cuda {

// All arrays are the device's. What lasts from step to step is kept by slot.
struct PagedBatch {
  int32_t sequences = 0;               // of the batch; those without rows are padding
  const int32_t* row_begin = nullptr;  // [sequences + 1]: rows [row_begin[s], row_begin[s + 1])
  const int32_t* slots = nullptr;      // [sequences]
  // [slots]: positions that the cache holds, this batch's rows included, which are the last ones.
  const int32_t* lengths = nullptr;
  const int32_t* page_tables = nullptr;  // [slots, page_table_stride]
  int64_t page_table_stride = 0;
};

}  // namespace skein::kernels::cuda
