/* The least that a broker of our shape does for a plain send: epoll_wait, recv, pwrite, send.
 *
 * floor PORT FILE: one thread answers RocketMQ's sends with JSON headers, one in flight a connection,
 * without looking at more of them than their number. It stores what it reads as it came, over and over in
 * 256 MiB. It is no broker: what it takes of CPU is the kernel's part, which no code of a broker goes below.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 64, SHARE = 16 << 10, FILE_SIZE = 256 << 20, AHEAD = 64 << 10 };

static char input[EVENTS * SHARE + 1], zeros[AHEAD];

static void answer(int socket, int number)
{
    char text[512];
    int size = sprintf(text + 8,
        "{\"code\":0,\"extFields\":{\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueId\":\"1\","
        "\"queueOffset\":\"123456\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}", number);
    uint32_t lengths[2] = {htonl((uint32_t)size + 4), htonl((uint32_t)size)};
    memcpy(text, lengths, sizeof lengths);
    if (send(socket, text, (size_t)size + 8, MSG_NOSIGNAL) < 0)
        perror("send");
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int file = open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, EVENTS) || file < 0)
        return 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = door}, events[EVENTS];
    epoll_ctl(set, EPOLL_CTL_ADD, door, &event);
    off_t at = 0, zeroed = 0;
    for (;;) {
        int found = epoll_wait(set, events, EVENTS, -1), asked = 0, sockets[EVENTS], numbers[EVENTS];
        size_t used = 0;
        for (int i = 0; i < found; i++) {
            int socket = events[i].data.fd;
            if (socket == door) {
                event.data.fd = accept4(door, NULL, NULL, SOCK_NONBLOCK);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t got = recv(socket, input + used, SHARE, 0);
            if (got <= 0) {
                close(socket);
                continue;
            }
            input[used + (size_t)got] = 0;
            char *number = memmem(input + used, (size_t)got, "\"opaque\":", 9);
            if (number) {
                sockets[asked] = socket;
                numbers[asked++] = atoi(number + 9);
            }
            used += (size_t)got;
        }
        if (!asked)
            continue;
        if (at + (off_t)used > FILE_SIZE)
            at = zeroed = 0;
        if (at + (off_t)used > zeroed) {
            if (pwrite(file, zeros, AHEAD, zeroed) < 0)
                return 1;
            zeroed += AHEAD;
        }
        if (pwrite(file, input, used, at) < 0)
            return 1;
        at += (off_t)used;
        for (int i = 0; i < asked; i++)
            answer(sockets[i], numbers[i]);
    }
}
