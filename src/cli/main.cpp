#include <tessera.h>

int main(int argc, char** argv) { return tessera_main(argc, argv); }
