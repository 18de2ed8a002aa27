#include "tessera/server/events/load_message.h"

#include "tessera/server/events/msgpack_writer.h"

namespace tessera {

// Subscribers know the numbers by their positions in the message. Older subscribers read only the first five.
std::string load_message(const PublishedLoad& load, int rank) {
  const LoadNumbers& numbers = load.numbers;
  MsgpackWriter writer;
  writer.array(11);
  writer.text("LoadStat");
  writer.integer(numbers.running);
  writer.integer(numbers.waiting);
  writer.integer(numbers.used_tokens);
  writer.integer(numbers.capacity);
  writer.integer(std::int64_t{rank});
  writer.integer(numbers.waiting_uncached_tokens);
  writer.integer(numbers.total_tokens);
  writer.integer(load.max_running_requests);
  writer.integer(load.prefill.tokens);
  writer.integer(load.prefill.microseconds);
  return writer.bytes();
}

}  // namespace tessera
