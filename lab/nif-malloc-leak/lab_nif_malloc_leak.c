/*
 * A native library that works in buffers of its own, as most do that wrap a library of C: they come from malloc,
 * not from the VM, so the VM counts none of them. It forgets to free them, or not, as its caller wants.
 *
 * It uses nothing but malloc, free and the NIF interface, so that it loads into systems with an older libc than
 * that of the compiler.
 */

#include <stdlib.h>

#include <erl_nif.h>

/* The header is that of the host's Erlang. What is used here is all in the interface of OTP 23, which is the first
 * release that is to load it, and which refuses libraries that ask for a newer one. */
#undef ERL_NIF_MINOR_VERSION
#define ERL_NIF_MINOR_VERSION 15
#undef ERL_NIF_MIN_ERTS_VERSION
#define ERL_NIF_MIN_ERTS_VERSION "erts-11.0"

#define PAGE 4096

/* work(Bytes, Free): a buffer of so many bytes, all pages of which are written. Gives whether there was memory for
 * it. */
static ERL_NIF_TERM work(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned int bytes, give_back;
    char *buffer;

    if (argc != 2 || !enif_get_uint(env, argv[0], &bytes) || !enif_get_uint(env, argv[1], &give_back)) {
        return enif_make_badarg(env);
    }
    buffer = malloc(bytes);
    if (buffer == NULL) {
        return enif_make_atom(env, "false");
    }
    for (unsigned int at = 0; at < bytes; at += PAGE) {
        ((volatile char *)buffer)[at] = 1;
    }
    if (give_back) {
        free(buffer);
    }
    return enif_make_atom(env, "true");
}

static ErlNifFunc functions[] = {{"work", 2, work, 0}};

ERL_NIF_INIT(lab_nif_malloc_leak, functions, NULL, NULL, NULL, NULL)
