// A chat: its exchanges in their order, all questions of a chat or all texts that are continued.
class Conversation {
  constructor(completes) {
    this.completes = completes;
    this.exchanges = [];
  }
}
