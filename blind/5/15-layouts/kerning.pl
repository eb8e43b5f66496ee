$| = 1;
my %pair = ("av" => -3, "to" => -2, "fa" => -1);
while (my $line = <STDIN>) {
    chomp $line;
    my ($width, $text) = split / /, $line, 2;
    while ($text =~ /(?=(..))/g) { $width += $pair{$1} || 0; }
    print "$width $text\n";
}
