#include "tessera/server/events/event_message.h"

#include <algorithm>

#include "tessera/server/events/msgpack_writer.h"

namespace tessera {
namespace {

// The name of the memory that holds the engine's own cache. Subscribers expect "GPU" even if the engine runs on another
// device, because all other names stand for caches in slower memory.
constexpr std::string_view kMedium = "GPU";

class EventWriter {
 public:
  EventWriter(MsgpackWriter& to, std::int64_t page_size) : to_(to), page_size_(page_size) {}

  void operator()(const BlocksStored& stored) {
    const bool has_images = std::ranges::any_of(stored.images, [](const auto& images) { return !images.empty(); });
    to_.map(has_images ? 9 : 8);
    type("BlockStored");
    block_hashes(stored.ids);
    to_.text("parent_block_hash");
    if (stored.parent) {
      to_.integer(*stored.parent);
    } else {
      to_.null();
    }
    to_.text("token_ids");
    to_.array(stored.tokens.size());
    for (const TokenId token : stored.tokens) to_.integer(std::int64_t{token.value()});
    to_.text("block_size");
    to_.integer(page_size_);
    to_.text("lora_id");
    if (stored.adapter != 0) {
      to_.integer(stored.adapter);
    } else {
      to_.null();
    }
    medium();
    to_.text("lora_name");
    if (stored.adapter != 0) {
      to_.text(stored.adapter_name);
    } else {
      to_.null();
    }
    if (has_images) extra_keys(stored);
  }
  void operator()(const BlocksRemoved& removed) {
    to_.map(3);
    type("BlockRemoved");
    block_hashes(removed.ids);
    medium();
  }
  void operator()(const BlocksCleared&) {
    to_.map(1);
    type("AllBlocksCleared");
  }

 private:
  void type(std::string_view name) {
    to_.text("type");
    to_.text(name);
  }
  void medium() {
    to_.text("medium");
    to_.text(kMedium);
  }
  void block_hashes(const std::vector<std::uint64_t>& ids) {
    to_.text("block_hashes");
    to_.array(ids.size());
    for (const std::uint64_t id : ids) to_.integer(id);
  }
  // Writes, for each block, the keys that distinguish it from other blocks with the same tokens: the adapter's name,
  // and a pair for each image in the block. The pair has the hash of the image's content and the position of the
  // image's first token relative to the block's first token. The position is negative if the image begins in an earlier
  // block.
  void extra_keys(const BlocksStored& stored) {
    to_.text("extra_keys");
    to_.array(stored.images.size());
    const std::size_t adapters = stored.adapter != 0 ? 1 : 0;
    for (const std::vector<PageImage>& images : stored.images) {
      if (images.size() + adapters == 0) {
        to_.null();
        continue;
      }
      to_.array(images.size() + adapters);
      if (adapters != 0) to_.text(stored.adapter_name);
      for (const PageImage& image : images) {
        to_.array(2);
        to_.text(image.content.hex());
        to_.integer(image.at - image.index);
      }
    }
  }

  MsgpackWriter& to_;
  const std::int64_t page_size_;
};

}  // namespace

std::string event_message(const EventBatch& batch, std::int64_t page_size, int rank) {
  MsgpackWriter writer;
  writer.array(3);
  writer.number(batch.unix_seconds);
  writer.array(batch.events.size());
  EventWriter events(writer, page_size);
  for (const CacheEvent& event : batch.events) std::visit(events, event);
  writer.integer(std::int64_t{rank});
  return writer.bytes();
}

}  // namespace tessera
