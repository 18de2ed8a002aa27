// Packs batches into messages between ranks. The sender and the receiver both keep state, so batches must be unpacked
// in the order in which they were packed.
//
// The sender and the receiver remember the page tables of the previous batch, and find a table by its number
// (PageTable::number). If the previous batch had a table with the same number, only the pages after that table's pages
// are sent. Any other table is sent whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/message.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// The sender's end of the stream of batches. Allocates memory only for a batch that is larger than all earlier ones.
class BatchPacker {
 public:
  void pack(const ForwardBatch& batch, MessageWriter& to);

 private:
  struct Sent {
    PageTableNumber number{};
    // The number of pages that were sent. It is set to 0 when a table of the next batch has been matched with this
    // entry.
    std::size_t length = 0;
  };
  struct Group {
    std::vector<Sent> last;
    std::vector<Sent> next;
  };
  static void pack_tables(std::span<const PageTable> tables, Group& group, MessageWriter& to);

  std::vector<Group> groups_;
};

// The receiver's end of the stream of batches. The batch is valid until the next unpack(). Its embedding writes point
// into the message.
class ReceivedBatch {
 public:
  // Unpacks the next batch. After an error the sender and the receiver may have different page tables, so the ranks
  // cannot continue.
  Status unpack(MessageReader& from);
  const ForwardBatch& batch() const { return batch_; }

 private:
  struct Row {
    PageTableNumber number{};
    std::int64_t first_held = 0;
    std::vector<PageId> pages;
  };
  struct Group {
    std::vector<Row> last;
    std::vector<Row> next;
    std::size_t rows = 0;  // number of entries of `last` in use
  };
  Status unpack_checkpoints(MessageReader& from);
  Status unpack_tables(MessageReader& from, Group& group, std::vector<PageTable>& tables);
  static Status unpack_table(MessageReader& from, Group& group, Row& row);

  ForwardBatch batch_;
  std::vector<Group> groups_;
};

}  // namespace tessera
