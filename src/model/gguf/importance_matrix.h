// Reads and writes importance matrices. For each matrix of a model, an importance matrix says how large the values in
// the matrix's input are. `tessera calibrate` and llama.cpp's llama-imatrix write it as a GGUF file (general.type is
// "imatrix"). The file has two F32 tensors for each matrix of the model: "<name>.in_sum2", the sums of the squares of
// the input's columns, and "<name>.counts", the numbers of input rows that the sums cover.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_file.h"

namespace tessera {

// The sums of one tensor of a model. A tensor with the matrices of all experts has sums for each expert. An expert's
// count is 0 if no token of the calibration text was routed to it.
struct ImportanceEntry {
  std::string name;           // name of the tensor in GGUF files, "blk.0.attn_q.weight"
  std::vector<float> sums;    // [counts, columns]: sum of the squares of each column of the input
  std::vector<float> counts;  // numbers of input rows that were added up; at least one element
};

struct ImportanceMatrix {
  std::string source;                 // path of the file, for messages
  std::vector<std::string> datasets;  // names of the texts
  std::int64_t chunk_count = 0;
  std::int64_t chunk_size = 0;           // number of tokens in a chunk
  std::vector<ImportanceEntry> entries;  // ascending names

  const ImportanceEntry* find(std::string_view name) const;  // null if there is none
};

// Reads an untrusted file. Tensors that llama-imatrix writes for its statistics ("<name>.in_sum") are skipped. Returns
// the errors of MappedFile::open() and GgufFile::parse(). Returns data_loss if the file is no importance matrix or
// lacks keys. Also returns data_loss if only one of a matrix's two tensors is there, or if a tensor has a wrong type or
// size, or values that are negative or not finite. The message names the file, the tensor, the value and what is
// accepted.
Result<ImportanceMatrix> read_importance(const std::string& path);
// Like read_importance(), for bytes in memory. `path` is for messages.
Result<ImportanceMatrix> parse_importance(std::span<const std::byte> bytes, const std::string& path);

// Writes the file in the form of llama-imatrix, with the entries in the order of their names. Replaces an existing
// file once the new one is complete. Precondition: entries are as described above, with distinct names.
Status write_importance(const std::string& path, ImportanceMatrix matrix);

}  // namespace tessera
