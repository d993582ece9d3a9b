// What fake_library.cc may need.
extern "C" void skein_absent() {}
