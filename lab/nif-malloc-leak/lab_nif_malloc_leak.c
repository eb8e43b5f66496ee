/*
 * A native library that works in buffers of its own, like most wrappers of C libraries: they come from malloc,
 * not from the VM, so the VM does not count them. The caller decides whether they are freed.
 *
 * It uses only malloc, free and the NIF interface, so that it can be loaded on systems with an older libc than
 * that of the compiler.
 */

#include <stdlib.h>

#include <erl_nif.h>

/* The header is that of the host's Erlang. OTP 23 is the oldest release that loads this library, has all functions
 * that it uses, and refuses libraries built for a newer interface. */
#undef ERL_NIF_MINOR_VERSION
#define ERL_NIF_MINOR_VERSION 15
#undef ERL_NIF_MIN_ERTS_VERSION
#define ERL_NIF_MIN_ERTS_VERSION "erts-11.0"

#define PAGE 4096

/* work(Bytes, Free): allocates a buffer and writes to all of its pages. Returns false if there was not enough
 * memory. */
static ERL_NIF_TERM work(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned int bytes, free_buffer;
    char *buffer;

    if (argc != 2 || !enif_get_uint(env, argv[0], &bytes) || !enif_get_uint(env, argv[1], &free_buffer)) {
        return enif_make_badarg(env);
    }
    buffer = malloc(bytes);
    if (buffer == NULL) {
        return enif_make_atom(env, "false");
    }
    for (unsigned int at = 0; at < bytes; at += PAGE) {
        ((volatile char *)buffer)[at] = 1;
    }
    if (free_buffer) {
        free(buffer);
    }
    return enif_make_atom(env, "true");
}

static ErlNifFunc functions[] = {{"work", 2, work, 0}};

ERL_NIF_INIT(lab_nif_malloc_leak, functions, NULL, NULL, NULL, NULL)
