// Continues a prompt with a model. Usage: generate MODEL_FOLDER PROMPT [MAX_NEW_TOKENS]
#include <tessera/engine/engine.h>
#include <tessera/text/stream_decoder.h>

#include <cstdlib>
#include <iostream>
#include <span>

namespace {

tessera::Status generate(const std::string& model_path, const std::string& prompt, std::int64_t max_new_tokens) {
  // Loads the model and captures its graphs.
  tessera::EngineOptions options;
  options.model_path = model_path;
  const std::unique_ptr<tessera::Engine> engine = TRY(tessera::Engine::create(options));
  if (engine->tokenizer() == nullptr) return tessera::not_found(model_path + " has no tokenizer.json");

  tessera::Request request;
  request.prompt = TRY(engine->tokenizer()->encode(prompt));
  request.stop.max_new_tokens = max_new_tokens;

  // Tokens arrive one by one. The decoder returns text as soon as its characters are complete.
  tessera::StreamDecoder decoder(*engine->tokenizer());
  TRY(engine->run(std::span(&request, 1), [&](std::size_t, const tessera::RequestEvent& event) {
    if (event.token) std::cout << decoder.push(*event.token) << std::flush;
  }));
  std::cout << decoder.finish() << '\n';
  return tessera::ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: generate MODEL_FOLDER PROMPT [MAX_NEW_TOKENS]\n";
    return 2;
  }
  const tessera::Status status = generate(argv[1], argv[2], argc > 3 ? std::atol(argv[3]) : 60);
  if (status.ok()) return 0;
  std::cerr << "error: " << status.message() << '\n';
  return 1;
}
