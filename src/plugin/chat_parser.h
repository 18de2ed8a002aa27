// Reads one text with a plugin's chat format. It checks and joins the pieces that the plugin returns.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/chat/chat_format.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

class PluginChatParser final : public ChatParser {
 public:
  // Begins to read a text. Copies the needed parts of the request. Returns the plugin's error, or an error that
  // says how the plugin violated the interface. The message begins with the format's name.
  static Result<std::unique_ptr<PluginChatParser>> begin(const tessera_plugin_chat_format& format,
                                                         const ChatFormat::Request& request);
  ~PluginChatParser() override;
  PluginChatParser(const PluginChatParser&) = delete;
  PluginChatParser& operator=(const PluginChatParser&) = delete;

  Result<std::vector<ChatPiece>> push(std::string_view text) override;
  Result<std::vector<ChatPiece>> finish() override;

 private:
  PluginChatParser(const tessera_plugin_chat_format& format, const ChatFormat::Request& request);
  static std::int32_t add(const tessera_plugin_pieces* pieces, std::int32_t kind, const char* data, std::size_t bytes,
                          tessera_plugin_error* error);
  static std::int32_t has_function(const tessera_plugin_chat* chat, const char* name, std::size_t bytes);
  Status add(std::int32_t kind, const char* data, std::size_t bytes);
  template <class F>
  Result<std::vector<ChatPiece>> collect(const F& function, bool ended);
  Result<std::vector<ChatPiece>> settle(bool ended);
  std::string context() const;

  tessera_plugin_chat_format format_;
  ChatFormat::Part part_;
  std::string tools_text_;
  std::vector<std::string> functions_;
  tessera_plugin_chat chat_;
  tessera_plugin_pieces pieces_;
  void* parser_ = nullptr;

  Status refused_;                // the error of the first call of add() that failed
  std::vector<ChatPiece> given_;  // pieces from the current call
  ChatPiece held_;                // an incomplete character, which the next call may complete
  bool has_call_ = false;
  std::size_t received_ = 0;  // number of bytes of text so far
  std::size_t taken_ = 0;     // number of bytes in pieces so far
};

}  // namespace tessera::plugin
